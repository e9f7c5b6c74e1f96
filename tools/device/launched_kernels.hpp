#pragma once

#include <string>

#include "w4moe/plan.hpp"

namespace w4moe {

/// "route + fc1.n16 + fc2.n16 + combine": what a run of so many tokens launches.
std::string launched_kernels(const Plan& plan, i64 tokens);

}  // namespace w4moe
