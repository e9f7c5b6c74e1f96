#include "tools/cli/device_choice.hpp"

#include <charconv>

#include "generator/problem/errors.hpp"
#include "runtime/driver/current_device.hpp"

namespace w4moe::cli {
namespace {

Machine::Gpu describe(const driver::DriverTable& table, int ordinal) {
  driver::Device device = 0;
  if (const driver::Code code = table.device_get(&device, ordinal); code != driver::kSuccess) {
    return {"", "", driver::driver_error(table, code, "cuDeviceGet")};
  }
  char name[256] = {};
  int major = 0;
  int minor = 0;
  table.device_get_name(name, sizeof name - 1, device);
  table.device_get_attribute(&major, driver::DeviceAttribute::compute_capability_major, device);
  table.device_get_attribute(&minor, driver::DeviceAttribute::compute_capability_minor, device);
  return {name, fmt::format("{}.{}", major, minor), driver::device_spec(table, device)};
}

}  // namespace

Machine look_at_machine() {
  Machine machine;
  const Result<const driver::DriverTable*> table = driver::system_driver();
  if (!table) {
    machine.why = table.error().message;
    return machine;
  }
  machine.driver = *table;
  machine.driver_version = driver::version_text(**table);
  if (const Status s = driver::initialize(**table); !s) {
    machine.why = s.error().message;
    return machine;
  }
  int count = 0;
  if (const Status s = driver::check(**table, (*table)->device_get_count(&count), "cuDeviceGetCount"); !s) machine.why = s.error().message;
  for (int i = 0; i < count; ++i) machine.gpus.push_back(describe(**table, i));
  if (count == 0 && machine.why.empty()) machine.why = "the driver reports no device";
  return machine;
}

Result<DeviceChoice> choose_device(const std::string& wish) {
  if (wish.empty()) {
    const Machine machine = look_at_machine();
    if (!machine.gpus.empty()) return DeviceChoice{DeviceKind::cuda, 0, "cuda:0", {}};
    return DeviceChoice{DeviceKind::cpu, 0, "cpu", machine.why};
  }
  if (wish == "cpu") return DeviceChoice{DeviceKind::cpu, 0, wish, {}};
  if (wish == "lockstep") return DeviceChoice{DeviceKind::lockstep, 0, wish, {}};
  if (wish == "cuda") return DeviceChoice{DeviceKind::cuda, 0, "cuda:0", {}};
  if (wish.rfind("cuda:", 0) == 0) {
    const char* begin = wish.data() + 5;
    const char* end = wish.data() + wish.size();
    int ordinal = -1;
    const auto [stop, error] = std::from_chars(begin, end, ordinal);
    if (error == std::errc() && stop == end && ordinal >= 0) return DeviceChoice{DeviceKind::cuda, ordinal, wish, {}};
  }
  return invalid_argument("--device {}: accepted are cuda:N, cpu and lockstep", wish);
}

}  // namespace w4moe::cli
