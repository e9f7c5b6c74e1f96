// Builds a kernel's text into a shared object with the host's C++ compiler, once per content.
#pragma once

#include <string>

#include "runtime/lockstep/device.hpp"

namespace w4moe::lockstep {

struct SharedObject {
  std::string path;
  std::string key;            ///< 32 hex digits, of everything that the object depends on
  bool compiled = false;      ///< else it was there
  double compile_ms = 0;
};

/// The shared object of `source`, built or found in the cache directory. not_prepared where it is not there and may not be compiled.
Result<SharedObject> build_shared_object(const KernelSource& source, const Options& options);

}  // namespace w4moe::lockstep
