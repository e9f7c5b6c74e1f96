#include "runtime/driver/current_device.hpp"

#include <fmt/format.h>

#include "generator/problem/errors.hpp"

namespace w4moe::driver {
namespace {

struct Capability {
  int major = 0;
  int minor = 0;
};

Result<int> attribute(const DriverTable& table, Device device, DeviceAttribute which) {
  int value = 0;
  if (Status s = check(table, table.device_get_attribute(&value, which, device), "cuDeviceGetAttribute"); !s) return s.error();
  return value;
}

Result<Capability> capability(const DriverTable& table, Device device) {
  Result<int> major = attribute(table, device, DeviceAttribute::compute_capability_major);
  if (!major) return major.error();
  Result<int> minor = attribute(table, device, DeviceAttribute::compute_capability_minor);
  if (!minor) return minor.error();
  return Capability{*major, *minor};
}

}  // namespace

Result<CurrentContext> current_context(const DriverTable& table) {
  CurrentContext context;
  if (Status s = check(table, table.ctx_get_current(&context.handle), "cuCtxGetCurrent"); !s) return s.error();
  if (context.handle == nullptr) {
    return Error{ErrorCode::driver,
                 "no CUDA context is current on this thread, and w4moe creates none: select a device first (cudaSetDevice, cuCtxSetCurrent)"};
  }
  if (Status s = check(table, table.ctx_get_id(context.handle, &context.id), "cuCtxGetId"); !s) return s.error();
  if (Status s = check(table, table.ctx_get_device(&context.device), "cuCtxGetDevice"); !s) return s.error();
  return context;
}

Result<DeviceSpec> device_spec(const DriverTable& table, Device device) {
  Result<Capability> cc = capability(table, device);
  if (!cc) return cc.error();
  Result<Arch> arch = arch_for_capability(cc->major, cc->minor);
  if (!arch) return arch.error();

  DeviceSpec spec;
  spec.arch = *arch;
  char name[256] = {};
  if (Status s = check(table, table.device_get_name(name, sizeof(name) - 1, device), "cuDeviceGetName"); !s) return s.error();
  spec.name = name;

  int shared_optin = 0;
  int shared_per_sm = 0;
  const std::pair<DeviceAttribute, int*> wanted[] = {
      {DeviceAttribute::multiprocessor_count, &spec.sms},
      {DeviceAttribute::max_shared_bytes_per_block_optin, &shared_optin},
      {DeviceAttribute::max_shared_bytes_per_multiprocessor, &shared_per_sm},
      {DeviceAttribute::max_registers_per_multiprocessor, &spec.registers_per_sm},
      {DeviceAttribute::max_threads_per_multiprocessor, &spec.max_threads_per_sm},
  };
  for (const auto& [which, to] : wanted) {
    Result<int> value = attribute(table, device, which);
    if (!value) return value.error();
    *to = *value;
  }
  spec.shared_optin_bytes = shared_optin;
  spec.shared_per_sm_bytes = shared_per_sm;
  return spec;
}

bool runs_on(Arch arch, int major, int minor) {
  const int target = static_cast<int>(arch) / 10;  // 90, 121, ...
  const bool exact = arch != Arch::sm_80 && arch != Arch::sm_86 && arch != Arch::sm_89;
  if (target / 10 != major) return false;
  return exact ? target % 10 == minor : target % 10 <= minor;
}

Status check_runs_on(const DriverTable& table, Device device, Arch arch) {
  Result<Capability> cc = capability(table, device);
  if (!cc) return cc.error();
  if (runs_on(arch, cc->major, cc->minor)) return {};
  return unsupported("kernels for {} do not run on device {}, which has compute capability {}.{}: plan for the device that runs them",
                     to_string(arch), device, cc->major, cc->minor);
}

}  // namespace w4moe::driver
