// The activation functions on the host, in double for the one reference and in float for the other.
#pragma once

#include <cmath>

#include "contract/types.h"

namespace w4moe {

template <class T>
T sigmoid_of(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <class T>
T gelu_erf_of(T x) {
  return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
}

/// act(gate, up); ungated activations take their only argument as `gate`. NaN passes through.
template <class T>
T activate_reference(Activation activation, const ActivationParams& params, T gate, T up) {
  const bool clamps = activation == Activation::silu || activation == Activation::swiglu_oai;
  if (clamps && params.has_limit != 0) {
    const T limit = static_cast<T>(params.limit);
    if (gate > limit) gate = limit;
    if (up > limit) up = limit;
    if (up < -limit) up = -limit;
  }
  switch (activation) {
    case Activation::silu: return gate * sigmoid_of(gate) * up;
    case Activation::swiglu_oai:
      return gate * sigmoid_of(static_cast<T>(params.alpha) * gate) * (up + static_cast<T>(params.beta));
    case Activation::geglu_tanh: {
      const T inner = T(0.79788456080286535588) * (gate + T(0.044715) * gate * gate * gate);
      return T(0.5) * gate * (T(1) + std::tanh(inner)) * up;
    }
    case Activation::geglu_erf: return gelu_erf_of(gate) * up;
    case Activation::situ: return T(4) * std::tanh(gate / T(4)) * sigmoid_of(gate) * T(25) * std::tanh(up / T(25));
    case Activation::relu2: return gate < T(0) ? T(0) : gate * gate;
    case Activation::silu_ungated: return gate * sigmoid_of(gate);
    case Activation::gelu_ungated: return gelu_erf_of(gate);
  }
  return T(0);
}

}  // namespace w4moe
