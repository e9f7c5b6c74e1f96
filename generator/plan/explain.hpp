// A plan as text for people and as JSON for scripts.
#pragma once

#include <string>

#include "w4moe/plan.hpp"

namespace w4moe {

/// Every choice with its reason: buckets, kernels, scratch regions, notes. Ends in a newline.
std::string explain(const Plan& plan);

/// The plan as one JSON object; `indent` < 0 puts it on one line. The same plan gives the same bytes.
std::string plan_json(const Plan& plan, int indent = 2);

}  // namespace w4moe
