#include "runtime/lockstep/shared_lines.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace w4moe::lockstep {

/// What stands against a write of `what` now.
std::string SharedLines::conflict(const Line& l, int thread, const char* what) const {
  if (l.in_flight >= 0) return fmt::format("{} to 16 bytes that a copy of thread {} is still on its way to", what, l.in_flight);
  if (!clocks_.knows(thread, l.write)) {
    if (l.write.slot >= clocks_.threads()) return fmt::format("{} to 16 bytes that an asynchronous copy wrote, without waiting for its mbarrier", what);
    return fmt::format("{} to 16 bytes that thread {} wrote, with no barrier in between", what, l.write.slot);
  }
  for (const Stamp& read : l.reads) {
    if (clocks_.knows(thread, read)) continue;
    if (read.slot >= clocks_.threads()) return fmt::format("{} to 16 bytes that a wgmma reads, which nobody has waited for as far as this thread knows", what);
    return fmt::format("{} to 16 bytes that thread {} reads, with no barrier in between", what, read.slot);
  }
  return {};
}

/// What stands against a read now.
std::string SharedLines::stale(const Line& l, int thread, const char* what) const {
  if (l.in_flight >= 0) return fmt::format("{} 16 bytes that thread {} copies and has not waited for", what, l.in_flight);
  if (clocks_.knows(thread, l.write)) return {};
  if (l.write.slot >= clocks_.threads()) return fmt::format("{} 16 bytes that an asynchronous copy wrote, without waiting for its mbarrier", what);
  return fmt::format("{} 16 bytes that thread {} wrote, with no barrier in between", what, l.write.slot);
}

std::string SharedLines::copy_issued(std::int64_t line, int thread) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  std::string fault = conflict(l, thread, "copies");
  l.in_flight = thread;
  return fault;
}

void SharedLines::copy_landed(std::int64_t line, const Stamp& by, bool bulk) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  l.in_flight = -1;
  l.async_write = bulk;
  l.write = by;
  l.reads.clear();
}

std::string SharedLines::write(std::int64_t line, int thread, const char* what) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  std::string fault = conflict(l, thread, what);
  l.async_write = false;
  l.write = clocks_.now(thread);
  l.reads.clear();
  return fault;
}

std::string SharedLines::read(std::int64_t line, int thread) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  std::string fault = stale(l, thread, "reads");
  if (!fault.empty()) return fault;
  std::erase_if(l.reads, [&](const Stamp& earlier) { return earlier.slot < clocks_.threads() && clocks_.knows(thread, earlier); });
  l.reads.push_back(clocks_.now(thread));
  return fault;
}

std::string SharedLines::read_async(std::int64_t line, int thread, const Stamp& agent) {
  Line& l = lines_[static_cast<std::size_t>(line)];
  std::string fault = stale(l, thread, "wgmma reads");
  if (fault.empty() && !l.async_write && !clocks_.knows_fenced(thread, l.write)) {
    fault = fmt::format("wgmma reads 16 bytes that {} wrote, with no fence_async_shared in between",
                        l.write.slot < 0                    ? std::string("nobody")
                        : l.write.slot < clocks_.threads() ? fmt::format("thread {}", l.write.slot)
                                                           : std::string("a copy through the generic proxy"));
  }
  if (!fault.empty()) return fault;
  std::erase_if(l.reads, [&](const Stamp& earlier) { return earlier.slot == agent.slot; });  // an agent's doings are in order
  l.reads.push_back(agent);
  return fault;
}

}  // namespace w4moe::lockstep
