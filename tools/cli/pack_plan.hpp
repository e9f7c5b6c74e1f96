// Which layers of a checkpoint are packed, and where to.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/options.hpp"
#include "w4moe/checkpoint.hpp"

namespace w4moe::cli {

/// One layer to be packed, or the reason why it cannot be.
struct PackItem {
  CheckpointEntry entry;
  Result<CheckpointLayer> layer;
  i64 packed_bytes = 0;
  std::string file;       ///< where it goes; empty without --out
  std::string status;     ///< "planned", "packed", "kept", "failed"
  double seconds = 0;
};

struct PackPlan {
  std::vector<PackItem> items;
  std::vector<CheckpointEntry> not_quantised;  ///< layers whose experts are no 4-bit ones
  bool one_file = false;                       ///< --out NAME.safetensors
};

/// Chooses by --layers; a layer named there that is not quantised is an error, others are left out.
Result<PackPlan> plan_packing(const PackFlags& flags, const Checkpoint& checkpoint);

}  // namespace w4moe::cli
