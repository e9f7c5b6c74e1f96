// The debug mode: scratch is filled before each run and its guard zones are looked at afterwards.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/driver/driver_api.hpp"
#include "w4moe/plan.hpp"

namespace w4moe {

inline constexpr i64 kGuardBytes = 65536;      ///< watched beyond required_bytes, where the caller's scratch has them
inline constexpr u8 kGuardByte = 0xa5;
inline constexpr u8 kPoisonByte = 0xff;        ///< NaN in every floating-point type, -1 in counts and ids

struct GuardZone {
  std::string after;       ///< the region before it
  i64 offset_bytes = 0;
  i64 bytes = 0;
};

/// Bytes that no kernel may touch: what alignment leaves between the regions, and scratch beyond what the plan asked for.
std::vector<GuardZone> guard_zones(const Plan& plan, i64 scratch_bytes);

/// Fills payload and guard zones, in stream order.
Status poison_scratch(const driver::DriverTable& table, const Plan& plan, const std::vector<GuardZone>& zones, void* scratch,
                      driver::Stream stream);

/// Reads the guard zones back (the stream has been waited for). corrupt, naming region, offset and byte, if one was written.
Status check_guards(const driver::DriverTable& table, const std::vector<GuardZone>& zones, const void* scratch);

/// Which scratch a run is working in, so that a second one on it is noticed.
class ScratchUse {
 public:
  /// Marks [scratch, scratch + bytes) as in use by `stream`; invalid_argument, naming both streams, if any byte of it is already.
  Status enter(const void* scratch, i64 bytes, driver::Stream stream);
  void leave(const void* scratch);

 private:
  struct Use {
    i64 bytes;
    driver::Stream stream;
  };
  std::mutex mutex_;
  std::map<const u8*, Use> uses_;
};

}  // namespace w4moe
