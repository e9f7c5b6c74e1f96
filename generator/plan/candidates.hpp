// What else could serve a bucket, and how long the cost model thinks each would take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "w4moe/plan.hpp"

namespace w4moe {

/// One way to serve the token counts of a bucket.
struct Candidate {
  std::string name;                 ///< "direct", "self-routed", or the block width: "n8", "w48"
  std::string pin;                  ///< pin that forces it, "" for direct kernels (no-direct rules them out)
  std::optional<double> first_us;   ///< predicted time of a layer at the bucket's first and last token count
  std::optional<double> last_us;
  bool chosen = false;
};

/// For each bucket, every candidate that the device serves, in the order of the pins; empty lists where no costs were measured.
/// Candidates that the plan's own pins rule out are among them.
std::vector<std::vector<Candidate>> candidates_of(const Plan& plan);

/// Whether the plan is pinned to batch-invariant kernels.
bool is_batch_invariant(const Plan& plan);

/// What batch invariance costs at a token count, by the cost model.
struct InvarianceCost {
  i64 tokens = 0;
  double us = 0;          ///< of this plan
  double free_us = 0;     ///< of the plan without the pin
};

/// For some token counts of a batch-invariant plan; empty for other plans and where no costs were measured.
std::vector<InvarianceCost> invariance_costs(const Plan& plan);

}  // namespace w4moe
