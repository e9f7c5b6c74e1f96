// Variants that the tests of this folder share. Each is one that a plan could hold.
#pragma once

#include "contract/variant.h"

namespace w4moe::test {

inline Variant fc1_nvfp4() {
  Variant v;
  v.kind = KernelKind::fc1;
  v.arch = Arch::sm_90a;
  v.hidden = 6144;
  v.intermediate = 512;
  v.format = kNvfp4;
  v.activation = Activation::silu;
  v.dtype = DType::bf16;
  return v;
}

inline Variant fc2_int4() {
  Variant v;
  v.kind = KernelKind::fc2;
  v.arch = Arch::sm_120a;
  v.hidden = 2048;
  v.intermediate = 768;
  v.format = QuantFormat{CodeType::u4, ScaleType::f16, kWholeRow, true, false};
  v.activation = Activation::gelu_ungated;
  v.dtype = DType::f16;
  v.tile = GemmTile{32, 2, 4, 2, 2, 4, 2};
  return v;
}

inline Variant route_sm80() {
  Variant v;
  v.kind = KernelKind::route;
  v.arch = Arch::sm_80;
  return v;
}

}  // namespace w4moe::test
