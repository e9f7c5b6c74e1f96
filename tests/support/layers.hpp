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

/// Index of the first byte in which two buffers differ, -1 if none does. (Comparing the vectors in a CHECK prints them whole.)
inline i64 first_difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return in_a == a.end() && in_b == b.end() ? -1 : in_a - a.begin();
}

/// A rank of a tensor-parallel group: views of its features of a layer that make_layer made with the default options and without zero
/// points. For the problem with the rank's part of `whole`'s intermediate size; biases are the caller's.
inline SourceWeights shard_of(const Problem& whole, const SourceWeights& source, i64 rank, i64 ranks) {
  const i64 features = whole.shape.intermediate / ranks;
  const auto rows = [&](const SourceTensor& t, i64 first) {
    const i64 columns = t.shape[2];
    return SourceTensor{static_cast<const u8*>(t.data) + first * columns, t.type, {t.shape[0], features, columns}, {t.shape[1] * columns, columns, 1}};
  };
  const auto columns = [&](const SourceTensor& t) {
    const i64 part = t.shape[2] / ranks;
    return SourceTensor{static_cast<const u8*>(t.data) + rank * part, t.type, {t.shape[0], t.shape[1], part}, {t.shape[1] * t.shape[2], t.shape[2], 1}};
  };
  const i64 up = whole.shape.intermediate + rank * features;
  SourceWeights shard = source;
  shard.gate_up_order = GateUpOrder::separate;
  shard.gate = SourceMatrix{{rows(source.gate_up.codes[0], rank * features)}, {rows(source.gate_up.scales[0], rank * features)}, {}, {}};
  shard.up = SourceMatrix{{rows(source.gate_up.codes[0], up)}, {rows(source.gate_up.scales[0], up)}, {}, {}};
  shard.down = SourceMatrix{{columns(source.down.codes[0])}, {columns(source.down.scales[0])}, {}, {}};
  shard.gate_up = {};
  return shard;
}

}  // namespace w4moe::test
