// A layer as its packed bytes tell it, in a plain checkpoint layout: what a reference computes from it has been through packing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/reference/moe_inputs.hpp"
#include "w4moe/weights.hpp"

namespace w4moe::cli {

/// Owns what `source` points to. Movable; the tensors stay where they are.
struct PackedSource {
  SourceWeights source;
  std::vector<std::vector<std::byte>> storage;
};

/// Unpacks the experts that the inputs name; the others stand for one of those, as nothing reads them.
Result<PackedSource> packed_source(const Problem& problem, std::span<const std::byte> prepared, const MoeInputs& inputs);

}  // namespace w4moe::cli
