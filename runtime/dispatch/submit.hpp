// Launches, as data -> the CUDA driver.
#pragma once

#include <memory>
#include <vector>

#include "runtime/dispatch/launch_sequence.hpp"
#include "runtime/module/kernel_library.hpp"

namespace w4moe {

/// Enqueues the launches on the stream, in order. `kernels` is parallel to Plan::kernels; the current context is theirs.
/// Allocates nothing and calls nothing but cuLaunchKernelEx.
Status submit(const driver::DriverTable& table, const Plan& plan, const std::vector<std::shared_ptr<const LoadedKernel>>& kernels,
              const LaunchSequence& launches, driver::Stream stream);

}  // namespace w4moe
