// Plans -> what to build, and what was built -> the report.
#pragma once

#include <span>
#include <vector>

#include "runtime/build/kernel_builder.hpp"

namespace w4moe {

/// Every kernel of the plans, in their order; the plans must outlive the result.
std::vector<KernelWish> kernel_wishes(std::span<const Plan> plans);

/// The same, and behind them those that pack the weights of the plans' formats: what a process without a compiler needs.
std::vector<KernelWish> all_wishes(std::span<const Plan> plans);

BuildReport build_report(const std::vector<BuiltKernel>& kernels, double seconds);

}  // namespace w4moe
