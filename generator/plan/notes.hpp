// The planner's words: why a kernel, why a bucket, and what padding and tails cost.
#pragma once

#include <string>
#include <vector>

#include "generator/plan/rules.hpp"
#include "w4moe/plan.hpp"

namespace w4moe {

/// Tile, shared memory, what was reduced, and the tails that the kernel meets.
std::string gemm_reason(const Variant& variant, const std::string& changes);

/// Why this block width for this range, and where the neighbours among `rules` (ascending) begin.
std::string bucket_reason(const Shape& shape, const Bucket& bucket, const TileRule& rule, const std::vector<const TileRule*>& rules,
                          bool pinned);

/// Padding of the packed weights in bytes and percent, tails, chunks; and why the wgmma family is not used, "" where it may be.
std::vector<std::string> plan_notes(const Plan& plan, const std::string& wgmma_obstacle);

/// Pin "no-tail": an error that names every tail of the plan.
Status refuse_tails(const Plan& plan);

}  // namespace w4moe
