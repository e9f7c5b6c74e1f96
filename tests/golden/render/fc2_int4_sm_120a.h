// fc2 sm_120a, H 2048, I 768, f16, int4:row:zp:f16, portable family, blocks of 32 rows, 256 threads
#pragma once

#include "contract/variant.h"

namespace w4moe {

inline constexpr Variant kVariant{
    .kind = KernelKind::fc2,
    .arch = Arch::sm_120a,
    .hidden = 2048,
    .intermediate = 768,
    .format = {
        .code = CodeType::u4,
        .scale = ScaleType::f16,
        .group_size = 0,
        .has_zero_point = true,
        .wide_exponent = false,
    },
    .activation = Activation::gelu_ungated,
    .dtype = DType::f16,
    .tile = {
        .block_rows = 32,
        .warps_rows = 2,
        .warps_k = 4,
        .strips_per_warp = 2,
        .units_per_warp = 2,
        .stages = 4,
        .min_ctas_per_sm = 2,
    },
    .family = Family::portable,
    .wgmma = {
        .widths = {8, 0, 0, 0, 0, 0},
        .blocks_per_group = 2,
        .stage_units = 2,
        .stages = 4,
        .steps_per_group = 1,
    },
};

}  // namespace w4moe
