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

std::string SharedLines::copy_issued(std::int64_t line, const Moment& now) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  if (l.in_flight >= 0) {
    return fmt::format("copy16_async to 16 bytes that a copy of thread {} is still on its way to", l.in_flight);
  }
  if (!ordered(l.write, now)) {
    return fmt::format("copy16_async over 16 bytes that thread {} wrote, with no barrier in between", l.write.thread);
  }
  if (!ordered(l.read, now)) {
    return fmt::format("copy16_async over 16 bytes that thread {} reads, with no barrier in between", l.read.thread);
  }
  if (l.many_readers && l.read.barriers == now.barriers) {
    return fmt::format("copy16_async over 16 bytes that thread {} reads, with no barrier in between", l.other_reader);
  }
  l.in_flight = now.thread;
  return {};
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
    return fmt::format("load_matrix_x4 reads 16 bytes that thread {} copies and has not waited for", l.in_flight);
  }
  if (!ordered(l.write, now)) {
    return fmt::format("load_matrix_x4 reads 16 bytes that thread {} copied, with no barrier in between", l.write.thread);
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
