#include "runtime/dispatch/debug_guard.hpp"

#include <fmt/format.h>

#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

driver::DevicePtr device_ptr(const void* pointer) { return reinterpret_cast<driver::DevicePtr>(pointer); }

}  // namespace

std::vector<GuardZone> guard_zones(const Plan& plan, i64 scratch_bytes) {
  std::vector<GuardZone> zones;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const PlannedRegion& region = plan.regions[i];
    const bool last = i + 1 == plan.regions.size();
    const i64 begin = region.offset_bytes + region.bytes;
    const i64 end = last ? min_of(scratch_bytes, plan.required_bytes() + kGuardBytes) : plan.regions[i + 1].offset_bytes;
    if (end > begin) zones.push_back(GuardZone{region.name, begin, end - begin});
  }
  return zones;
}

Status poison_scratch(const driver::DriverTable& table, const Plan& plan, const std::vector<GuardZone>& zones, void* scratch,
                      driver::Stream stream) {
  const auto fill = [&](i64 offset, i64 bytes, u8 value) {
    return driver::check(table, table.memset_d8_async(device_ptr(scratch) + static_cast<u64>(offset), value, static_cast<std::size_t>(bytes), stream),
                         "cuMemsetD8Async");
  };
  for (const PlannedRegion& region : plan.regions) {
    if (region.region == Region::control) continue;  // written once by init_scratch; kernels leave it as they found it
    if (Status s = fill(region.offset_bytes, region.bytes, kPoisonByte); !s) return s;
  }
  for (const GuardZone& zone : zones) {
    if (Status s = fill(zone.offset_bytes, zone.bytes, kGuardByte); !s) return s;
  }
  return {};
}

Status check_guards(const driver::DriverTable& table, const std::vector<GuardZone>& zones, const void* scratch) {
  std::vector<u8> bytes;
  for (const GuardZone& zone : zones) {
    bytes.resize(static_cast<std::size_t>(zone.bytes));
    if (Status s = driver::check(table, table.memcpy_dtoh(bytes.data(), device_ptr(scratch) + static_cast<u64>(zone.offset_bytes), bytes.size()),
                                 "cuMemcpyDtoH");
        !s) {
      return s;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == kGuardByte) continue;
      return Error{ErrorCode::corrupt, fmt::format("a kernel wrote outside its region: byte {} of the scratch, {} bytes past the end of region {}, is {:#04x}",
                                                   zone.offset_bytes + static_cast<i64>(i), i, zone.after, bytes[i])};
    }
  }
  return {};
}

Status ScratchUse::enter(const void* scratch, i64 bytes, driver::Stream stream) {
  const u8* begin = static_cast<const u8*>(scratch);
  const std::lock_guard lock(mutex_);
  auto next = uses_.lower_bound(begin + bytes);
  if (next != uses_.begin()) {
    const auto& [other, use] = *std::prev(next);
    if (other + use.bytes > begin) {
      return invalid_argument("scratch at {} is in use by a run on stream {} while a run on stream {} wants it: each stream needs a scratch of its own",
                              scratch, fmt::ptr(use.stream), fmt::ptr(stream));
    }
  }
  uses_.emplace(begin, Use{bytes, stream});
  return {};
}

void ScratchUse::leave(const void* scratch) {
  const std::lock_guard lock(mutex_);
  uses_.erase(static_cast<const u8*>(scratch));
}

}  // namespace w4moe
