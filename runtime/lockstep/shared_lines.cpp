#include "runtime/lockstep/shared_lines.hpp"

#include <fmt/format.h>

namespace w4moe::lockstep {
namespace {

/// Whether `before` is ordered ahead of `now` by program order, a barrier or a warp_sync.
bool ordered(const Moment& before, const Moment& now) {
  if (before.thread < 0 || before.thread == now.thread || before.barriers < now.barriers) return true;
  return before.warp == now.warp && before.warp_syncs < now.warp_syncs;
}

}  // namespace

/// What stands against a write of `what` now.
std::string SharedLines::conflict(const Line& l, const Moment& now, const char* what) {
  if (l.in_flight >= 0) return fmt::format("{} to 16 bytes that a copy of thread {} is still on its way to", what, l.in_flight);
  const char* verb = "wrote";
  int other = l.write.thread;
  if (ordered(l.write, now)) {
    if (ordered(l.read, now) && !(l.many_readers && l.read.barriers == now.barriers)) return {};
    verb = "reads";
    other = ordered(l.read, now) ? l.other_reader : l.read.thread;
  }
  return fmt::format("{} to 16 bytes that thread {} {}, with no barrier in between", what, other, verb);
}

std::string SharedLines::copy_issued(std::int64_t line, const Moment& now) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  std::string fault = conflict(l, now, "copy16_async");
  l.in_flight = now.thread;
  return fault;
}

std::string SharedLines::write(std::int64_t line, const Moment& now) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  std::string fault = conflict(l, now, "store_shared_x4");
  l.write = now;
  l.read = Moment{};
  l.many_readers = false;
  return fault;
}

void SharedLines::copy_landed(std::int64_t line, const Moment& now) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  l.in_flight = -1;
  l.write = now;
  l.read = Moment{};
  l.many_readers = false;
}

std::string SharedLines::read(std::int64_t line, const Moment& now) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  if (l.in_flight >= 0) {
    return fmt::format("reads 16 bytes that thread {} copies and has not waited for", l.in_flight);
  }
  if (!ordered(l.write, now)) {
    return fmt::format("reads 16 bytes that thread {} wrote, with no barrier in between", l.write.thread);
  }
  const bool same_interval = l.read.thread >= 0 && l.read.barriers == now.barriers;
  if (same_interval && l.read.warp != now.warp) {
    l.many_readers = true;
    l.other_reader = l.read.thread;
  } else if (!same_interval) {
    l.many_readers = false;
  }
  l.read = now;
  return {};
}

}  // namespace w4moe::lockstep
