// The context and device of the calling thread.
#pragma once

#include "runtime/driver/driver_api.hpp"
#include "w4moe/device.hpp"

namespace w4moe::driver {

struct CurrentContext {
  Context handle = nullptr;
  unsigned long long id = 0;   ///< unique for the life of the process, unlike the handle
  Device device = 0;
};

/// The calling thread's context. driver error where there is none: w4moe creates no context of its own, since it cannot know
/// which device the caller means.
Result<CurrentContext> current_context(const DriverTable& table);

/// What plans need to know of a device, read off its attributes. unsupported for a compute capability that no target fits.
Result<DeviceSpec> device_spec(const DriverTable& table, Device device);

/// C28: code for `arch` runs on a device of this capability: an "a" target on exactly its own, another on the same major
/// capability from its minor on.
bool runs_on(Arch arch, int major, int minor);

/// unsupported, naming both, unless code for `arch` runs on the device.
Status check_runs_on(const DriverTable& table, Device device, Arch arch);

}  // namespace w4moe::driver
