// What a build is to make: the plans of every layer on every target, and which of them share a kernel.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/options.hpp"
#include "w4moe/plan.hpp"

namespace w4moe::cli {

/// A layer that has no plan on a target.
struct PlanFailure {
  std::string problem;
  std::string where;  ///< JSON pointer in the manifest; empty for a layer of flags
  std::string arch;
  Error error;
};

struct BuildSet {
  std::vector<Plan> plans;  ///< each layer and target once, in an order that does not depend on the manifest's
  std::vector<PlanFailure> failures;
};

/// From the manifest or from flags. An error where nothing can be read; a layer that has no plan is a failure of its own.
Result<BuildSet> build_set_from(const Options& options);

/// One use of a kernel: the layer, the kernel's name in its plan, and the token counts that run it.
struct KernelUse {
  std::string problem;
  std::string kernel;
  std::vector<std::pair<i64, i64>> tokens;
};

/// Uses by kernel key (64 hex digits).
std::map<std::string, std::vector<KernelUse>> kernel_uses(const std::vector<Plan>& plans);

}  // namespace w4moe::cli
