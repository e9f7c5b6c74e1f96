// Flags -> problems, devices and plans.
#pragma once

#include <vector>

#include "tools/cli/options.hpp"
#include "w4moe/plan.hpp"

namespace w4moe::cli {

/// The layer of the flags. `default_max_tokens` stands in where --max-tokens is not given and is not needed; negative: it is needed.
Result<Problem> problem_from(const ProblemFlags& flags, i64 default_max_tokens = -1);

/// True if any flag describes a layer.
bool has_problem(const ProblemFlags& flags);

/// Activation and its parameters, where given, over what `problem` has.
Status apply_activation(const ProblemFlags& flags, Problem& problem);

/// --arch, else W4MOE_ARCH, else sm_90a; each once.
Result<std::vector<DeviceSpec>> devices_from(const PlanFlags& flags);

Result<PlanOptions> plan_options_from(const PlanFlags& flags);

/// The plan of the flags for the one device that they name.
Result<Plan> plan_from(const Options& options);

}  // namespace w4moe::cli
