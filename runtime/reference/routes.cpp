#include "runtime/reference/routes.hpp"

#include <cstring>
#include <numeric>

#include "generator/problem/errors.hpp"
#include "runtime/weights/float_bits.hpp"

namespace w4moe {
namespace {

i64 id_at(const MoeInputs& inputs, i64 token, i64 j) {
  const i64 at = token * inputs.ids_row_stride_elems + j;
  return inputs.id_type == IdType::i64 ? static_cast<const i64*>(inputs.ids)[at] : static_cast<const i32*>(inputs.ids)[at];
}

float weight_at(const MoeInputs& inputs, i64 token, i64 j) {
  const i64 at = token * inputs.router_row_stride_elems + j;
  if (inputs.router_dtype == DType::f32) return static_cast<const float*>(inputs.router_weights)[at];
  return float_of_bf16(static_cast<const u16*>(inputs.router_weights)[at]);
}

}  // namespace

std::vector<i64> computed_tokens(const MoeInputs& inputs, const ReferenceOptions& options) {
  if (!options.tokens.empty()) return options.tokens;
  std::vector<i64> all(static_cast<std::size_t>(inputs.tokens));
  std::iota(all.begin(), all.end(), i64{0});
  return all;
}

std::vector<std::vector<Route>> routes_by_expert(const Problem& problem, const MoeInputs& inputs, const std::vector<i64>& tokens) {
  std::vector<std::vector<Route>> routes(static_cast<std::size_t>(problem.shape.experts));
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (i64 j = 0; j < problem.shape.topk; ++j) {
      const i64 id = id_at(inputs, tokens[row], j);
      if (id < 0 || id >= problem.shape.experts) continue;
      routes[static_cast<std::size_t>(id)].push_back(Route{static_cast<i64>(row), tokens[row], j, weight_at(inputs, tokens[row], j)});
    }
  }
  return routes;
}

float token_value(const Problem& problem, const MoeInputs& inputs, i64 token, i64 column) {
  return float_of(problem.dtype, static_cast<const u16*>(inputs.x)[token * inputs.x_row_stride_elems + column]);
}

Status check_reference(const Problem& problem, const SourceWeights& source, const MoeInputs& inputs, std::size_t out_elems,
                       const ReferenceOptions& options) {
  if (Status s = validate_source(problem, source); !s) return s;
  if (source.on_device) return invalid_argument("the tensors are in device memory; the references read host tensors only");
  if (inputs.router_dtype == DType::f16) return invalid_argument("router weights of dtype f16 (accepted: f32, bf16)");
  if (inputs.tokens < 0) return invalid_argument("{} tokens", inputs.tokens);
  for (const i64 token : options.tokens) {
    if (token < 0 || token >= inputs.tokens) return invalid_argument("token {}: out of range (accepted: 0..{})", token, inputs.tokens - 1);
  }
  const auto expected = static_cast<std::size_t>(static_cast<i64>(computed_tokens(inputs, options).size()) * problem.shape.hidden);
  if (out_elems != expected) return invalid_argument("output of {} elements, expected {}", out_elems, expected);
  return {};
}

}  // namespace w4moe
