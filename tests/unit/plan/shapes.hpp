// Problems that the plan tests share.
#pragma once

#include <string>

#include "w4moe/plan.hpp"

namespace w4moe {

inline Problem problem_of(i64 hidden, i64 intermediate, i64 experts, i64 topk, i64 max_tokens, const std::string& format = "mxfp4",
                          Activation activation = Activation::silu) {
  Problem p;
  p.shape = Shape{hidden, intermediate, experts, topk, max_tokens};
  p.format = *parse_format(format);
  p.activation = activation;
  p.params = default_params(activation);
  return p;
}

inline Problem seed_case(i64 max_tokens = 64) { return problem_of(6144, 512, 160, 8, max_tokens, "nvfp4"); }

}  // namespace w4moe
