// Small problems and packed layers for tests.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "runtime/reference/synthetic.hpp"
#include "w4moe/weights.hpp"

namespace w4moe::test {

inline QuantFormat int4_format(i64 group, bool zero_points = false, ScaleType scale = ScaleType::bf16) {
  return QuantFormat{CodeType::u4, scale, group, zero_points, false};
}

inline Problem small_problem(i64 hidden, i64 intermediate, i64 experts, QuantFormat format = kMxfp4,
                             Activation activation = Activation::silu) {
  Problem problem;
  problem.name = "test";
  problem.shape = Shape{hidden, intermediate, experts, std::min<i64>(2, experts), 64};
  problem.format = format;
  problem.activation = activation;
  problem.params = default_params(activation);
  problem.compact_tail = format.is_mxfp4() && intermediate % 32 != 0;
  return problem;
}

/// Packs, or fails loudly: a destination full of 0xa5, so that unwritten bytes show.
inline std::vector<std::byte> packed(const Problem& problem, const SourceWeights& source, const PackOptions& options = {}) {
  const Result<i64> bytes = prepared_weight_bytes(problem);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  std::vector<std::byte> dest(static_cast<std::size_t>(*bytes), std::byte{0xa5});
  if (Status s = pack_on_cpu(problem, source, dest, options); !s) throw std::runtime_error(s.error().message);
  return dest;
}

}  // namespace w4moe::test
