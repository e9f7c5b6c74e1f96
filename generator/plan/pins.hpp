// Pins: the caller's restrictions on what the planner may pick.
#pragma once

#include <string>
#include <vector>

#include "generator/plan/rules.hpp"
#include "w4moe/error.hpp"

namespace w4moe {

struct Pins {
  const TileRule* block = nullptr;  ///< the one block width to use for every m; null: by routes per expert
  bool portable = true;             ///< families that may be picked
  bool wgmma = true;
  bool no_direct = false;           ///< no direct kernels for a single token, and a routing kernel for few routes, too
  bool batch_invariant = false;     ///< kernels of one order of sums only: a token's bits depend neither on m nor on its neighbours
  bool no_tail = false;             ///< refuse a plan in which a kernel works on part-filled tiles
};

/// Reads pins; unknown or contradicting ones are errors that list the known.
Result<Pins> parse_pins(const std::vector<std::string>& pins);

}  // namespace w4moe
