// The enumerations of the problem: what a layer computes and in which formats.
#pragma once

#include "contract/prelude.h"

namespace w4moe {

/// Element type of activations, of router weights and of biases.
enum class DType : u8 { bf16, f16, f32 };

W4MOE_HD constexpr i64 dtype_bytes(DType t) { return t == DType::f32 ? 4 : 2; }

/// Element type of expert ids.
enum class IdType : u8 { i32, i64 };

W4MOE_HD constexpr i64 id_type_bytes(IdType t) { return t == IdType::i64 ? 8 : 4; }

/// The function between FC1 and FC2. Gated ones read a gate row and an up row per feature.
enum class Activation : u8 {
  silu,           ///< silu(gate) * up, after the optional limit (gate <= L, |up| <= L)
  swiglu_oai,     ///< gate * sigmoid(alpha * gate) * (up + beta), after the clamp
  geglu_tanh,     ///< gelu_tanh(gate) * up
  geglu_erf,      ///< gelu_erf(gate) * up
  situ,           ///< 4 tanh(gate/4) sigmoid(gate) * 25 tanh(up/25)
  relu2,          ///< max(x, 0)^2, ungated
  silu_ungated,   ///< x * sigmoid(x)
  gelu_ungated,   ///< gelu_erf(x)
};

inline constexpr i32 kActivationCount = 8;

W4MOE_HD constexpr bool is_gated(Activation a) {
  return a != Activation::relu2 && a != Activation::silu_ungated && a != Activation::gelu_ungated;
}

/// Activation parameters as the kernels read them (run-time arguments, so that equal kernels are built once).
struct ActivationParams {
  float alpha = 1.0f;      ///< slope inside the sigmoid of swiglu_oai
  float beta = 0.0f;       ///< added to up by swiglu_oai
  float limit = 0.0f;      ///< clamp L; ignored unless has_limit
  u32 has_limit = 0;       ///< 1: the clamp applies
};

/// How 4-bit codes are read.
enum class CodeType : u8 {
  e2m1,  ///< FP4: magnitudes 0 .5 1 1.5 2 3 4 6, bit 3 the sign
  u4,    ///< INT4: an unsigned code 0..15, less 8 or less the group's zero point
};

/// How block scales are stored in the checkpoint.
enum class ScaleType : u8 {
  e8m0,  ///< 2^(byte-127), byte 255 is NaN
  e4m3,  ///< FP8 e4m3fn
  bf16,
  f16,
};

}  // namespace w4moe
