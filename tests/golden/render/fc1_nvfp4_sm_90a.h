// fc1 sm_90a, H 6144, I 512, bf16, nvfp4, silu, portable family, blocks of 8 rows, 256 threads
#pragma once

#include "contract/variant.h"

namespace w4moe {

inline constexpr Variant kVariant{
    .kind = KernelKind::fc1,
    .arch = Arch::sm_90a,
    .hidden = 6144,
    .intermediate = 512,
    .format = {
        .code = CodeType::e2m1,
        .scale = ScaleType::e4m3,
        .group_size = 16,
        .has_zero_point = false,
        .wide_exponent = false,
    },
    .activation = Activation::silu,
    .dtype = DType::bf16,
    .tile = {
        .block_rows = 8,
        .warps_rows = 4,
        .warps_k = 2,
        .strips_per_warp = 1,
        .units_per_warp = 4,
        .stages = 3,
        .min_ctas_per_sm = 1,
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
