// The planner's answer: which kernels serve which token counts, how much scratch that takes, and why.
#pragma once

#include <string>
#include <vector>

#include "contract/args.h"
#include "w4moe/device.hpp"
#include "w4moe/problem.hpp"

namespace w4moe {

/// The pin under which a token's output bits depend neither on m nor on the other tokens (docs/numerics.md).
inline constexpr const char* kBatchInvariantPin = "batch-invariant";

/// One kernel to build: its specialisation and what it is for.
struct PlannedKernel {
  std::string name;      ///< "fc1.n16": kind and block width, unique inside a plan
  Variant variant;
  std::string reason;    ///< why this tile
};

/// A range of token counts and the kernels that serve it. Ranges are ascending and cover 1..chunk_tokens without gaps.
struct Bucket {
  i64 first_tokens = 1;
  i64 last_tokens = 1;
  int block_rows = 8;
  int fc1 = -1;          ///< index into Plan::kernels
  int fc2 = -1;
  bool parallel_route = false;  ///< enough routes for two parallel routing kernels instead of the one-CTA kernel
  bool direct = false;   ///< one token: FC1 reads the ids, fc2 is an fc2_direct kernel, no route and no combine launch
  bool self_routed = false;  ///< few routes: FC1 and FC2 find their blocks in the ids, no route launch
  std::string reason;    ///< why these, and why not the others
};

struct PlannedRegion {
  std::string name;
  Region region = Region::control;
  i64 offset_bytes = 0;
  i64 bytes = 0;
  std::string lifetime;  ///< "init .. always", "route .. combine", ...
};

/// Restrictions and wishes of the caller; part of the plan's identity.
struct PlanOptions {
  std::vector<std::string> pins;   ///< see known_pins(): "portable", "no-wgmma", "n16", "w48", "no-direct", "no-tail", "batch-invariant", ...
  i64 scratch_cap_bytes = 0;       ///< 0: none. Otherwise runs are cut into chunks of tokens whose scratch stays below it.
};

/// Immutable, safe from any thread, and pure: the same problem, device and version give the same plan everywhere.
struct Plan {
  Problem problem;
  DeviceSpec device;
  PlanOptions options;
  std::vector<PlannedKernel> kernels;
  int route = -1;        ///< index into kernels; -1 where no bucket launches it
  int route_count = -1;
  int route_place = -1;
  int combine = -1;
  std::vector<Bucket> buckets;
  std::vector<PlannedRegion> regions;
  ScratchLayout scratch;
  WeightLayout weights;
  /// Tokens of one launch sequence: max_tokens, or fewer under a scratch cap; a larger run is cut into chunks of this many.
  i64 chunk_tokens = 0;
  std::vector<std::string> notes;  ///< padding waste, tails, and the like

  /// Bytes of scratch that bind() asks for: exact, 64-bit, monotone in max_tokens, at most the scratch cap. No CUDA call.
  i64 required_bytes() const { return scratch.total_bytes(); }
  i64 prepared_weight_bytes() const { return weights.total_bytes(); }
  u64 layout() const { return layout_id(weights); }

  /// The bucket that serves a launch of m tokens, 1 <= m <= chunk_tokens. A plan for max_tokens 0 has no bucket.
  const Bucket& bucket_for(i64 tokens) const;

  /// Indices into `kernels` of what a launch of this bucket runs, in launch order.
  std::vector<int> launched_by(const Bucket& bucket) const;
};

/// Every spelling that PlanOptions::pins accepts.
const std::vector<std::string>& known_pins();

/// Decides everything about a layer on a device: pure host arithmetic, microseconds, no CUDA call.
Result<Plan> make_plan(const Problem& problem, const DeviceSpec& device, const PlanOptions& options = {});

}  // namespace w4moe
