// Weights in the packed layout, in device memory that the caller owns.
#pragma once

#include "contract/layout_id.h"

namespace w4moe {

/// A view: the memory must stay as it is while a Binding uses it. Make one with Engine::adopt, or from what packing returned.
struct PreparedWeights {
  const void* data = nullptr;  ///< device pointer to the header, aligned to kRegionAlignBytes
  i64 bytes = 0;               ///< size of the memory at data, at least header.total_bytes
  WeightHeader header{};       ///< a host copy of the first 64 bytes
};

}  // namespace w4moe
