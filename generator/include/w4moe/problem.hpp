// What a caller asks for: one MoE layer, its formats and its mathematics. Plain data; validate() is the one gate for all stages.
#pragma once

#include <string>
#include <string_view>

#include "contract/shape.h"
#include "w4moe/error.hpp"

namespace w4moe {

/// One MoE layer as one rank holds it. Immutable once planned.
struct Problem {
  std::string name;               ///< for messages and reports only
  Shape shape;                    ///< H, I per rank, E held, top-k, max_tokens
  QuantFormat format = kMxfp4;
  Activation activation = Activation::silu;
  ActivationParams params;        ///< alpha, beta, limit; defaults by activation come from default_params()
  DType dtype = DType::bf16;      ///< activations and output: bf16 or f16
  bool has_bias = false;          ///< both projections carry a bias per expert
  bool weight_on_input = false;   ///< router weight on the input, W (w x) + b, instead of on the output
  bool compact_tail = false;      ///< MXFP4: accept I % 8 == 0 with a partial last group
};

/// Alpha, beta and limit that an activation has when the caller gives none (swiglu-oai: 1.702, 1, 7).
ActivationParams default_params(Activation activation);

/// Accepts the problem, or says which value is wrong and what would be accepted. Plan, prepare and run all call this one.
Status validate(const Problem& problem);

/// Names as the CLI and the manifest spell them: "silu", "swiglu-oai", ...; "mxfp4", "nvfp4", "int4:g32:zp:f16", "mxfp4:wide"; "bf16".
std::string_view to_string(Activation activation);
std::string to_string(const QuantFormat& format);
std::string_view to_string(DType dtype);
Result<Activation> parse_activation(std::string_view text);
Result<QuantFormat> parse_format(std::string_view text);
Result<DType> parse_dtype(std::string_view text);

}  // namespace w4moe
