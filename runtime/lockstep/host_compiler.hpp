// Builds a kernel's text into a shared object with the host's C++ compiler, once per content.
#pragma once

#include <string>

#include "runtime/lockstep/device.hpp"

namespace w4moe::lockstep {

/// Path of the shared object of `source`, built or found in the cache directory.
Result<std::string> build_shared_object(const KernelSource& source, const Options& options);

}  // namespace w4moe::lockstep
