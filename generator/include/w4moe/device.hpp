// The facts of a device that plans depend on: read off a GPU by the runtime, or named for offline builds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "contract/variant.h"
#include "w4moe/error.hpp"

namespace w4moe {

struct DeviceSpec {
  std::string name;                     ///< "sm_90a" or the GPU's own name
  Arch arch = Arch::sm_90a;
  int sms = 0;                          ///< multiprocessors
  i64 shared_optin_bytes = 0;           ///< largest dynamic shared memory of one CTA
  i64 shared_per_sm_bytes = 0;
  int registers_per_sm = 65536;
  int max_threads_per_sm = 0;
};

/// "sm_90a" and the like; the NVRTC option is "-arch=" + this.
std::string_view to_string(Arch arch);
Result<Arch> parse_arch(std::string_view text);

/// Every target that kernels can be built for.
const std::vector<Arch>& known_archs();

/// The device a bare `--arch` stands for (sm_90a: 132 SMs, 227 KiB); sms > 0 overrides its multiprocessor count.
DeviceSpec named_device(Arch arch, int sms = 0);

/// Target for a compute capability: 9.0 -> sm_90a, 12.1 -> sm_121a, ...; unknown ones are an error that lists the known.
Result<Arch> arch_for_capability(int major, int minor);

}  // namespace w4moe
