// The function between FC1 and FC2, in fp32. The mirroring reference on the host follows the same formulas.
#pragma once

#include "contract/types.h"
#include "device/ops.h"

namespace w4moe {

inline constexpr float kLog2E = 1.4426950408889634f;

/// 1 / (1 + exp(-x)).
W4MOE_INLINE float sigmoid(float x) { return ops::reciprocal_fast(1.0f + ops::exp2_fast(-x * kLog2E)); }

W4MOE_INLINE float gelu_erf(float x) { return 0.5f * x * (1.0f + ops::erf_precise(x * 0.70710678118654752f)); }

W4MOE_INLINE float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + ops::tanh_precise(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}

/// act(gate, up); ungated activations ignore `up`.
template <Activation A>
W4MOE_INLINE float activate(float gate, float up, const ActivationParams& p) {
  if constexpr (A == Activation::silu || A == Activation::swiglu_oai) {
    if (p.has_limit != 0) {
      // Written so that a NaN passes: it must reach the output.
      gate = gate > p.limit ? p.limit : gate;
      up = up > p.limit ? p.limit : up < -p.limit ? -p.limit : up;
    }
  }
  if constexpr (A == Activation::silu) return gate * sigmoid(gate) * up;
  if constexpr (A == Activation::swiglu_oai) return gate * sigmoid(p.alpha * gate) * (up + p.beta);
  if constexpr (A == Activation::geglu_tanh) return gelu_tanh(gate) * up;
  if constexpr (A == Activation::geglu_erf) return gelu_erf(gate) * up;
  if constexpr (A == Activation::situ) {
    return 4.0f * ops::tanh_precise(gate * 0.25f) * sigmoid(gate) * 25.0f * ops::tanh_precise(up * 0.04f);
  }
  if constexpr (A == Activation::relu2) return gate < 0.0f ? 0.0f : gate * gate;
  if constexpr (A == Activation::silu_ungated) return gate * sigmoid(gate);
  if constexpr (A == Activation::gelu_ungated) return gelu_erf(gate);
}

}  // namespace w4moe
