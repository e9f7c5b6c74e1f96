// Named barriers, mbarriers, and copies that land by themselves.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/lockstep/scheduler.hpp"

#if defined(W4MOE_LOCKSTEP_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace w4moe::lockstep {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

void poison([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(W4MOE_LOCKSTEP_ASAN)
  __asan_poison_memory_region(p, bytes);
#endif
}

void unpoison([[maybe_unused]] const void* p, [[maybe_unused]] std::size_t bytes) {
#if defined(W4MOE_LOCKSTEP_ASAN)
  __asan_unpoison_memory_region(p, bytes);
#endif
}

}  // namespace

void Scheduler::on_named_barrier(int id, int threads, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  if (id < 1 || id > 15) fail(t, fmt::format("named barrier {}; 1 to 15 are accepted", id), site);
  if (threads <= 0 || threads % kWarpLanes != 0 || threads > cta.thread_count()) {
    fail(t, fmt::format("named barrier {} of {} threads; whole warps, at most the CTA's {}, are accepted", id, threads, cta.thread_count()), site);
  }
  if (cta.named_barriers.size() < 16) cta.named_barriers.resize(16);
  NamedBarrier& b = cta.named_barriers[index(id)];
  if (b.arrived.empty()) {
    b.threads = threads;
    b.site = site;
  } else if (b.threads != threads) {
    fail(t, fmt::format("named barrier {} of {} threads, while thread {} waits for {} at {}", id, threads, b.arrived[0], b.threads, text_of(b.site)), site);
  }
  order_release(&b.order_token);
  b.arrived.push_back(t.position.thread);
  t.state = State::at_named_barrier;
  t.site = site;
  t.waits_for = id;
  if (static_cast<int>(b.arrived.size()) == threads) {
    ++stats_.barriers;
    cta.clocks.meet(b.arrived.data(), threads);
    for (const int thread : b.arrived) make_ready(cta.threads[index(thread)]);
    b.arrived.clear();
  }
  leave(t, false);
  order_acquire(&cta.named_barriers[index(id)].order_token);
}

/// The mbarrier at a place, which must be ready for use.
int Scheduler::barrier_at(Thread& t, const void* b, Site site) {
  const std::int64_t offset = shared_offset(t, b, 8, "an mbarrier at", site);
  Cta& cta = *t.cta;
  for (std::size_t i = 0; i < cta.async_barriers.size(); ++i) {
    if (cta.async_barriers[i].offset != offset) continue;
    if (!cta.async_barriers[i].fenced) fail(t, fmt::format("uses the mbarrier at shared offset {} before async_barrier_init_fence", offset), site);
    return static_cast<int>(i);
  }
  fail(t, fmt::format("no mbarrier was initialised at shared offset {}", offset), site);
}

void Scheduler::on_async_barrier_init(const void* b, int arrivals, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const std::int64_t offset = shared_offset(t, b, 8, "an mbarrier at", site);
  if (offset % 8 != 0) fail(t, fmt::format("an mbarrier at shared offset {} is not 8-byte aligned", offset), site);
  if (arrivals < 1) fail(t, fmt::format("an mbarrier of {} arrivals; at least 1 is accepted", arrivals), site);
  Cta& cta = *t.cta;
  const bool again = std::any_of(cta.async_barriers.begin(), cta.async_barriers.end(), [&](const AsyncBarrier& other) { return other.offset == offset; });
  if (again) fail(t, fmt::format("the mbarrier at shared offset {} is initialised twice", offset), site);
  AsyncBarrier& barrier = cta.async_barriers.emplace_back();
  barrier.offset = offset;
  barrier.expected = arrivals;
  barrier.pending = arrivals;
  barrier.agent = cta.clocks.add_agent();
  poison(b, 8);
}

void Scheduler::on_async_barrier_init_fence() {
  const IgnoreAccesses ignore;
  for (AsyncBarrier& barrier : running_->cta->async_barriers) barrier.fenced = true;
}

/// Completes the phase where all has come that it waits for, and lets go on who waits for it.
void Scheduler::complete_phases(Cta& cta, int which) {
  AsyncBarrier& b = cta.async_barriers[index(which)];
  if (b.pending > 0 || b.bytes != 0) return;
  b.done = b.gathered;
  b.pending = b.expected;
  ++b.phase;
  for (int i = 0; i < cta.thread_count(); ++i) {
    Thread& t = cta.threads[index(i)];
    if (t.state == State::at_async_barrier && t.waits_for == which) make_ready(t);
  }
}

void Scheduler::on_async_barrier_arrive(const void* b, unsigned bytes, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  const int which = barrier_at(t, b, site);
  AsyncBarrier& barrier = cta.async_barriers[index(which)];
  order_release(&barrier.order_token[barrier.phase & 1u]);
  cta.clocks.release(t.position.thread, barrier.gathered);
  barrier.bytes += bytes;
  --barrier.pending;
  complete_phases(cta, which);
}

bool Scheduler::on_async_barrier_test(const void* b, unsigned parity, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  const int which = barrier_at(t, b, site);
  if ((cta.async_barriers[index(which)].phase & 1u) == parity) {
    // Whoever asks in a loop must let the others get on.
    land_one();
    make_ready(t);
    leave(t, false);
  }
  AsyncBarrier& barrier = cta.async_barriers[index(which)];
  if ((barrier.phase & 1u) == parity) return false;
  order_acquire(&barrier.order_token[(barrier.phase & 1u) ^ 1u]);
  cta.clocks.acquire(t.position.thread, barrier.done);
  return true;
}

void Scheduler::on_async_barrier_wait(const void* b, unsigned parity, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  if (parity > 1) fail(t, fmt::format("waits for parity {}; 0 and 1 are accepted", parity), site);
  const int which = barrier_at(t, b, site);
  while ((cta.async_barriers[index(which)].phase & 1u) == parity) {
    t.state = State::at_async_barrier;
    t.site = site;
    t.waits_for = which;
    leave(t, false);
  }
  AsyncBarrier& barrier = cta.async_barriers[index(which)];
  order_acquire(&barrier.order_token[(barrier.phase & 1u) ^ 1u]);
  cta.clocks.acquire(t.position.thread, barrier.done);
}

void Scheduler::on_copy_bulk(const BulkCopy& copy, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  const int which = barrier_at(t, copy.barrier, site);
  const std::int64_t offset = shared_offset(t, copy.dst, copy.bytes, "copy_bulk to", site);
  for (std::int64_t line = offset / 16; line < (offset + copy.bytes) / 16; ++line) {
    std::string fault = cta.lines.copy_issued(line, t.position.thread);
    if (fault.empty()) continue;
    fault += fmt::format(" (shared offset {})", line * 16);
    fail(t, std::move(fault), site);
  }
  InFlight& flight = cta.in_flight.emplace_back();
  flight.thread = &t;
  flight.barrier = which;
  flight.site = site;
  flight.dst = static_cast<unsigned char*>(copy.dst);
  flight.data.assign(copy.data, copy.data + copy.bytes);
}

void Scheduler::on_copy_arrive(const void* b, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  InFlight& flight = cta.in_flight.emplace_back();
  flight.thread = &t;
  flight.barrier = barrier_at(t, b, site);
  flight.site = site;
  flight.copies.swap(t.copies);
  flight.group = t.open_group;
}

/// Puts a copy where it belongs and counts it at its mbarrier.
void Scheduler::land(Cta& cta, const InFlight& flight) {
  AsyncBarrier& barrier = cta.async_barriers[index(flight.barrier)];
  const Stamp by = cta.clocks.step(barrier.agent);
  const unsigned char* shared = cta.shared->base();
  const auto put = [&](void* dst, const unsigned char* data, std::size_t bytes, bool bulk) {
    unpoison(dst, bytes);
    std::memcpy(dst, data, bytes);
    const std::int64_t first = (static_cast<unsigned char*>(dst) - shared) / 16;
    for (std::int64_t line = first; line < first + static_cast<std::int64_t>(bytes / 16); ++line) cta.lines.copy_landed(line, by, bulk);
  };
  if (flight.dst != nullptr) {
    put(flight.dst, flight.data.data(), flight.data.size(), true);
    barrier.bytes -= static_cast<std::int64_t>(flight.data.size());
  } else {
    for (const PendingCopy& copy : flight.copies) put(copy.dst, copy.data, 16, false);
    --barrier.pending;
  }
  cta.clocks.publish(barrier.agent, barrier.gathered);
  complete_phases(cta, flight.barrier);
}

/// Lands one copy of those on their way; false where there is none.
bool Scheduler::land_one() {
  for (auto& cta : ctas_) {
    if (cta->live == 0 || cta->in_flight.empty()) continue;
    const std::size_t pick = schedule_.random ? random_() % cta->in_flight.size() : 0;
    const auto at = cta->in_flight.begin() + static_cast<std::ptrdiff_t>(pick);
    const InFlight flight = std::move(*at);
    cta->in_flight.erase(at);
    land(*cta, flight);
    return true;
  }
  return false;
}

/// What a thread that waits for its own copies waits for as well.
void Scheduler::land_of_thread(Thread& t, int open_groups) {
  auto& flights = t.cta->in_flight;
  for (std::size_t i = 0; i < flights.size();) {
    if (flights[i].thread != &t || flights[i].dst != nullptr || flights[i].group >= t.open_group - open_groups) {
      ++i;
      continue;
    }
    const InFlight flight = std::move(flights[i]);
    flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(i));
    land(*t.cta, flight);
  }
}

/// What a CTA must not leave behind.
std::string Scheduler::copies_left(const Cta& cta) const {
  for (const InFlight& flight : cta.in_flight) {
    if (flight.dst == nullptr) continue;
    return fmt::format("the CTA ends while a bulk copy of thread {} from {} is on its way into its shared memory", flight.thread->position.thread,
                       text_of(flight.site));
  }
  return {};
}

}  // namespace w4moe::lockstep
