// What the intrinsics do to threads, warps and CTAs.
#include <fmt/format.h>

#include <cstring>

#include "runtime/lockstep/scheduler.hpp"

namespace w4moe::lockstep {

Host& Scheduler::host() {
  static Host table{
      kAbiVersion,
      nullptr,
      [](Site site) { active().on_barrier(site); },
      [](WarpOp op, void* operand, Site site) { active().on_warp_op(op, operand, site); },
      [](void* dst, const unsigned char* data, Site site) { active().on_copy_issue(dst, data, site); },
      [] { active().on_copy_commit(); },
      [](int open_groups) { return active().on_copy_retire(open_groups); },
      [](const void* p, bool is_write, Site site) { active().on_shared_access(p, is_write, site); },
      [](int id, int threads, Site site) { active().on_named_barrier(id, threads, site); },
      [](const void* b, int arrivals, Site site) { active().on_async_barrier_init(b, arrivals, site); },
      [] { active().on_async_barrier_init_fence(); },
      [](const void* b, unsigned bytes, Site site) { active().on_async_barrier_arrive(b, bytes, site); },
      [](const void* b, unsigned parity, Site site) { return active().on_async_barrier_test(b, parity, site); },
      [](const void* b, unsigned parity, Site site) { active().on_async_barrier_wait(b, parity, site); },
      [](const BulkCopy& copy, Site site) { active().on_copy_bulk(copy, site); },
      [](const void* b, Site site) { active().on_copy_arrive(b, site); },
      [] { active().on_fence_async_shared(); },
      [] { active().on_wgmma_fence(); },
      [](const WgmmaOperand& operand, Site site) { active().on_wgmma_add(operand, site); },
      [] { active().on_wgmma_commit(); },
      [](int open_groups, Site site) { active().on_wgmma_wait(open_groups, site); },
      [] { active().on_yield(); },
      [](Site site) { active().on_grid_wait(site); },
      [] { active().on_grid_launch_next(); },
      [](const char* what, Site site) { active().on_fail(what, site); },
  };
  return table;
}

/// Offset of `bytes` bytes into the CTA's shared memory, or a report.
std::int64_t Scheduler::shared_offset(Thread& t, const void* p, std::int64_t bytes, const char* what, Site site) {
  const std::int64_t offset = static_cast<const unsigned char*>(p) - t.position.shared;
  if (offset < 0 || offset + bytes > t.position.shared_bytes) {
    fail(t, fmt::format("{} offset {} of {} bytes of shared memory", what, offset, t.position.shared_bytes), site);
  }
  return offset;
}

void Scheduler::release_barrier(Cta& cta) {
  ++cta.barriers;
  cta.clocks.meet_all();
  ++stats_.barriers;
  cta.at_barrier = 0;
  cta.barrier_first = -1;
  for (int i = 0; i < cta.thread_count(); ++i) {
    Thread& t = cta.threads[static_cast<std::size_t>(i)];
    if (t.state == State::at_barrier) make_ready(t);
  }
}

void Scheduler::on_barrier(Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  if (cta.at_barrier == 0) {
    cta.barrier_site = site;
    cta.barrier_first = t.position.thread;
  } else if (!same_site(cta.barrier_site, site)) {
    fail(t, fmt::format("barrier, while thread {} waits at another one, {}", cta.barrier_first, text_of(cta.barrier_site)), site);
  }
  const std::uint32_t phase = cta.barriers & 1u;
  order_release(&cta.order_token[phase]);
  ++cta.at_barrier;
  t.state = State::at_barrier;
  t.site = site;
  if (cta.at_barrier == cta.live) release_barrier(cta);
  leave(t, false);
  order_acquire(&cta.order_token[phase]);
}

void Scheduler::on_warp_op(WarpOp op, void* operand, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  Cta& cta = *t.cta;
  Warp& warp = cta.warps[static_cast<std::size_t>(t.position.warp)];
  if (warp.exited > 0) fail(t, fmt::format("{} after {} lanes of the warp have exited", name_of(op), warp.exited), site);
  if (warp.op == WarpOp::none) {
    warp.op = op;
    warp.site = site;
    warp.first_lane = t.position.lane;
  } else if (warp.op != op || !same_site(warp.site, site)) {
    fail(t, fmt::format("{}, while lane {} of the warp waits in {} at {}", name_of(op), warp.first_lane, name_of(warp.op), text_of(warp.site)),
         site);
  }
  const std::uint32_t phase = warp.syncs & 1u;
  if (op == WarpOp::warp_sync) order_release(&warp.order_token[phase]);
  warp.operands[t.position.lane] = operand;
  t.state = State::in_warp_op;
  t.site = site;
  if (++warp.arrived == kWarpLanes) {
    perform(op, warp.operands);
    ++stats_.warp_ops;
    if (op == WarpOp::warp_sync) {
      ++warp.syncs;
      cta.clocks.meet_warp(t.position.warp * kWarpLanes);
    }
    warp.op = WarpOp::none;
    warp.arrived = 0;
    const std::size_t first = static_cast<std::size_t>(t.position.warp) * kWarpLanes;
    for (std::size_t lane = 0; lane < kWarpLanes; ++lane) make_ready(cta.threads[first + lane]);
  }
  leave(t, false);
  if (op == WarpOp::warp_sync) order_acquire(&warp.order_token[phase]);
}

void Scheduler::on_copy_issue(void* dst, const unsigned char* data, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const std::int64_t offset = shared_offset(t, dst, 16, "copy16_async to", site);
  if (std::string fault = t.cta->lines.copy_issued(offset / 16, t.position.thread); !fault.empty()) {
    fault += fmt::format(" (shared offset {})", offset);
    fail(t, std::move(fault), site);
  }
  PendingCopy copy;
  copy.dst = dst;
  copy.group = t.open_group;
  std::memcpy(copy.data, data, 16);
  t.copies.push_back(copy);
}

void Scheduler::on_copy_commit() {
  const IgnoreAccesses ignore;
  ++running_->open_group;
}

const LandedCopy* Scheduler::on_copy_retire(int open_groups) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  if (!t.cta->in_flight.empty()) land_of_thread(t, open_groups);
  if (t.copies.empty() || t.copies.front().group >= t.open_group - open_groups) return nullptr;
  const PendingCopy& copy = t.copies.front();
  t.landed.dst = copy.dst;
  std::memcpy(t.landed.data, copy.data, 16);
  t.cta->lines.copy_landed((static_cast<const unsigned char*>(copy.dst) - t.position.shared) / 16, t.cta->clocks.now(t.position.thread), false);
  t.copies.pop_front();
  return &t.landed;
}

void Scheduler::on_shared_access(const void* p, bool is_write, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const std::int64_t offset = shared_offset(t, p, 16, "access to", site);
  SharedLines& lines = t.cta->lines;
  std::string fault = is_write ? lines.write(offset / 16, t.position.thread, "stores") : lines.read(offset / 16, t.position.thread);
  if (!fault.empty()) {
    fault += fmt::format(" (shared offset {})", offset);
    fail(t, std::move(fault), site);
  }
}

void Scheduler::on_yield() {
  const IgnoreAccesses ignore;
  if (!schedule_.random || random_() % 4 != 0) return;
  Thread& t = *running_;
  make_ready(t);
  leave(t, false);
}

/// A grid's results are there once it is done: for ThreadSanitizer, what ordered the running thread after it.
void Scheduler::acquire_finished_grids(const Grid& grid) {
  for (std::size_t i = 0; i < grid.index; ++i) {
    if (grids_[i].done()) order_acquire(&grids_[i].order_end);
  }
}

void Scheduler::on_grid_wait(Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const Grid& grid = *t.cta->grid;
  if (grid.index > 0 && !grids_[grid.index - 1].done()) {
    t.state = State::at_grid_wait;
    t.site = site;
    leave(t, false);
  }
  acquire_finished_grids(grid);
}

void Scheduler::on_grid_launch_next() {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  signal(*t.cta);
  if (!attention_) return;
  make_ready(t);
  leave(t, false);
}

void Scheduler::on_fail(const char* what, Site site) {
  const IgnoreAccesses ignore;
  fail(*running_, what, site);
}

}  // namespace w4moe::lockstep
