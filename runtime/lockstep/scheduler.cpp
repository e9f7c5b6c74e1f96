#include "runtime/lockstep/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>

#if defined(W4MOE_LOCKSTEP_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace w4moe::lockstep {
namespace {

#if defined(W4MOE_LOCKSTEP_ASAN) || defined(W4MOE_LOCKSTEP_TSAN)
constexpr std::size_t kStackBytes = 512 * 1024;
#else
constexpr std::size_t kStackBytes = 128 * 1024;
#endif
#if defined(W4MOE_LOCKSTEP_TSAN)
constexpr bool kFreshShared = true;  // a block used again would look like a race between CTAs
#else
constexpr bool kFreshShared = false;
#endif

constexpr int kEverything = -1;            // copy_retire: also copies that were never committed

Scheduler* g_active = nullptr;

bool same_site(Site a, Site b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

std::string text_of(Site site) {
  if (site.file == nullptr) return "?";
  std::string_view file = site.file;
  const std::size_t slash = file.rfind('/');
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, site.line);
}

}  // namespace

Scheduler::Scheduler() = default;
Scheduler::~Scheduler() = default;

Scheduler& Scheduler::active() { return *g_active; }

Host& Scheduler::host() {
  static Host table{
      kAbiVersion,
      nullptr,
      [](Site site) { active().on_barrier(site); },
      [](WarpOp op, void* operand, Site site) { active().on_warp_op(op, operand, site); },
      [](void* dst, const void* src, int valid, const unsigned char* data, Site site) {
        active().on_copy_issue(dst, src, valid, data, site);
      },
      [](Site) { active().on_copy_commit(); },
      [](int open_groups, Site) { return active().on_copy_retire(open_groups); },
      [](const void* p, bool is_write, Site site) { active().on_shared_access(p, is_write, site); },
      [] { active().on_yield(); },
      [](const char* what, Site site) {
        const IgnoreAccesses ignore;
        active().fail(*active().running_, what, site);
      },
  };
  return table;
}

std::string Scheduler::run(const GridSpec& spec) {
  const IgnoreAccesses ignore;
  if (spec.threads <= 0 || spec.threads % kWarpLanes != 0 || spec.threads > 1024) {
    return fmt::format("{}: {} threads per CTA; a multiple of 32 up to 1024 is accepted", spec.kernel, spec.threads);
  }
  if (spec.grid_x <= 0 || spec.grid_y <= 0 || spec.shared_bytes < 0 || spec.resident_ctas <= 0) {
    return fmt::format("{}: grid {} x {}, {} bytes of shared memory, {} resident CTAs; positive sizes are accepted", spec.kernel,
                       spec.grid_x, spec.grid_y, spec.shared_bytes, spec.resident_ctas);
  }
  spec_ = spec;
  stats_ = {};
  report_.clear();
  random_.seed(spec.seed);
  const std::int64_t total = spec.grid_x * spec.grid_y;
  const std::size_t residents = static_cast<std::size_t>(std::min<std::int64_t>(spec.resident_ctas, total));
  while (ctas_.size() < residents) ctas_.push_back(std::make_unique<Cta>());
  for (auto& cta : ctas_) cta->live = 0;
  ready_.assign(residents * static_cast<std::size_t>(spec.threads), nullptr);
  ready_head_ = ready_count_ = 0;

  std::vector<std::int64_t> order(static_cast<std::size_t>(total));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (spec.random) std::shuffle(order.begin(), order.end(), random_);

  main_ = std::make_unique<Fiber>();
  g_active = this;
  order_release(&order_begin_);
  std::int64_t next = 0;
  while (report_.empty()) {
    bool any = false;
    for (std::size_t i = 0; i < residents; ++i) {
      Cta& cta = *ctas_[i];
      if (cta.live == 0 && next < total) {
        if (!start_cta(cta, order[static_cast<std::size_t>(next++)])) break;
      }
      any = any || cta.live > 0;
    }
    if (!any || !report_.empty()) break;
    Thread* thread = take_ready();
    if (thread == nullptr) {
      report_ = deadlock_report();
      break;
    }
    running_ = thread;
    host().current = &thread->position;
    ++stats_.switches;
    Fiber::switch_to(*main_, *thread->fiber);
    running_ = nullptr;
    host().current = nullptr;
  }
  if (!report_.empty()) abandon_threads();
  order_acquire(&order_end_);
  g_active = nullptr;
  return report_;
}

void Scheduler::abandon_threads() {
  for (auto& cta : ctas_) {
    for (Thread& t : cta->threads) {
      if (t.state != State::exited && t.fiber != nullptr) t.fiber->abandon(&order_end_);
      t.state = State::exited;
    }
    cta->live = 0;
  }
}

bool Scheduler::start_cta(Cta& cta, std::int64_t index) {
  cta.x = index % spec_.grid_x;
  cta.y = index / spec_.grid_x;
  cta.live = spec_.threads;
  cta.at_barrier = 0;
  cta.barriers = 0;
  cta.barrier_first = -1;
  if (cta.shared == nullptr || cta.shared->bytes() != spec_.shared_bytes || kFreshShared) {
    cta.shared = std::make_unique<SharedBlock>(spec_.shared_bytes);
  }
  if (!cta.shared->ok()) {
    report_ = fmt::format("{}: no memory for {} bytes of shared memory", spec_.kernel, spec_.shared_bytes);
    return false;
  }
  cta.shared->reset();
  cta.lines.reset(spec_.shared_bytes);
  cta.warps.assign(static_cast<std::size_t>(spec_.threads / kWarpLanes), Warp{});
  if (cta.threads.size() < static_cast<std::size_t>(spec_.threads)) cta.threads.resize(static_cast<std::size_t>(spec_.threads));
  for (int i = 0; i < spec_.threads; ++i) {
    Thread& t = cta.threads[static_cast<std::size_t>(i)];
    t.position = {i, i % kWarpLanes, i / kWarpLanes, cta.x, cta.y, spec_.grid_x, cta.shared->base(), spec_.shared_bytes};
    t.cta = &cta;
    t.site = {nullptr, 0};
    t.copies.clear();
    t.open_group = 0;
    if (t.fiber == nullptr) t.fiber = std::make_unique<Fiber>(kStackBytes);
    if (!t.fiber->ok()) {
      report_ = fmt::format("{}: no memory for the stack of thread {}", spec_.kernel, i);
      return false;
    }
    t.fiber->prepare(&fiber_main, &t);
    make_ready(t);
  }
  return true;
}

void Scheduler::fiber_main(void* thread) {
  ignore_accesses_begin();
  Scheduler& s = active();
  Thread& t = *static_cast<Thread*>(thread);
  const Entry entry = s.spec_.entry;
  const void* args = s.spec_.args;
  order_acquire(&s.order_begin_);
  ignore_accesses_end();
  entry(args);
  // Copies that nobody waited for land at some time; here as late as can be.
  while (const LandedCopy* copy = s.on_copy_retire(kEverything)) {
#if defined(W4MOE_LOCKSTEP_ASAN)
    __asan_unpoison_memory_region(copy->dst, 16);
#endif
    std::memcpy(copy->dst, copy->data, 16);
  }
  ignore_accesses_begin();
  s.finish_thread(t);
  s.leave(t, true);
  std::abort();
}

void Scheduler::finish_thread(Thread& t) {
  t.state = State::exited;
  Cta& cta = *t.cta;
  Warp& warp = cta.warps[static_cast<std::size_t>(t.position.warp)];
  ++warp.exited;
  if (warp.op != WarpOp::none) {
    fail(t, fmt::format("exits while lane {} of its warp waits in {} at {}", warp.first_lane, name_of(warp.op), text_of(warp.site)),
         t.site);
  }
  if (--cta.live == 0) {
    if (const std::int64_t past = cta.shared->overrun(); past >= 0) {
      fail(t, fmt::format("the CTA wrote past its {} bytes of shared memory, {} bytes behind the end", spec_.shared_bytes, past), t.site);
    }
    return;
  }
  if (cta.at_barrier == cta.live) release_barrier(cta);
}

void Scheduler::make_ready(Thread& t) {
  t.state = State::ready;
  ready_[(ready_head_ + ready_count_) % ready_.size()] = &t;
  ++ready_count_;
}

Scheduler::Thread* Scheduler::take_ready() {
  if (ready_count_ == 0) return nullptr;
  if (spec_.random) {
    const std::size_t pick = (ready_head_ + random_() % ready_count_) % ready_.size();
    std::swap(ready_[pick], ready_[ready_head_]);
  }
  Thread* t = ready_[ready_head_];
  ready_head_ = (ready_head_ + 1) % ready_.size();
  --ready_count_;
  return t;
}

/// Continues another thread; back to the program where none can run, and at a CTA's end so that the next one may start.
void Scheduler::leave(Thread& t, bool done) {
  Thread* next = done && t.cta->live == 0 ? nullptr : take_ready();
  if (next == &t) return;
  running_ = next;
  host().current = next != nullptr ? &next->position : nullptr;
  ++stats_.switches;
  Fiber& from = *t.fiber;
  Fiber& to = next != nullptr ? *next->fiber : *main_;
  if (done) order_release(&order_end_);
  ignore_accesses_end();
  Fiber::switch_to(from, to, done);
  ignore_accesses_begin();
}

void Scheduler::fail(Thread& t, std::string&& what, Site site) {
  report_ = fmt::format("{}: {}", where(t, site), what);
  std::string().swap(what);  // the fiber is abandoned here, its objects are not destroyed
  Fiber& from = *t.fiber;
  Fiber& to = *main_;
  ignore_accesses_end();
  Fiber::switch_to(from, to, true);
  std::abort();
}

std::string Scheduler::where(const Thread& t, Site site) const {
  const std::string place = site.file != nullptr ? " at " + text_of(site) : "";
  return fmt::format("{}, CTA ({}, {}) thread {} (warp {}, lane {}){}", spec_.kernel, t.cta->x, t.cta->y, t.position.thread,
                     t.position.warp, t.position.lane, place);
}

Moment Scheduler::moment(const Thread& t) const {
  return {t.position.thread, t.position.warp, t.cta->barriers, t.cta->warps[static_cast<std::size_t>(t.position.warp)].syncs};
}

std::int64_t Scheduler::shared_offset(const Thread& t, const void* p) const {
  return static_cast<const unsigned char*>(p) - t.position.shared;
}

void Scheduler::release_barrier(Cta& cta) {
  ++cta.barriers;
  ++stats_.barriers;
  cta.at_barrier = 0;
  cta.barrier_first = -1;
  for (int i = 0; i < spec_.threads; ++i) {
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
    if (op == WarpOp::warp_sync) ++warp.syncs;
    warp.op = WarpOp::none;
    warp.arrived = 0;
    const std::size_t first = static_cast<std::size_t>(t.position.warp) * kWarpLanes;
    for (std::size_t lane = 0; lane < kWarpLanes; ++lane) make_ready(cta.threads[first + lane]);
  }
  leave(t, false);
  if (op == WarpOp::warp_sync) order_acquire(&warp.order_token[phase]);
}

void Scheduler::on_copy_issue(void* dst, const void*, int, const unsigned char* data, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const std::int64_t offset = shared_offset(t, dst);
  if (offset < 0 || offset + 16 > spec_.shared_bytes) {
    fail(t, fmt::format("copy16_async to offset {} of {} bytes of shared memory", offset, spec_.shared_bytes), site);
  }
  if (std::string fault = t.cta->lines.copy_issued(offset / 16, moment(t)); !fault.empty()) {
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
  if (t.copies.empty() || t.copies.front().group >= t.open_group - open_groups) return nullptr;
  const PendingCopy& copy = t.copies.front();
  t.landed.dst = copy.dst;
  std::memcpy(t.landed.data, copy.data, 16);
  t.cta->lines.copy_landed(shared_offset(t, copy.dst) / 16, moment(t));
  t.copies.pop_front();
  return &t.landed;
}

void Scheduler::on_shared_access(const void* p, bool is_write, Site site) {
  const IgnoreAccesses ignore;
  Thread& t = *running_;
  const std::int64_t offset = shared_offset(t, p);
  if (offset < 0 || offset + 16 > spec_.shared_bytes) {
    fail(t, fmt::format("access to offset {} of {} bytes of shared memory", offset, spec_.shared_bytes), site);
  }
  SharedLines& lines = t.cta->lines;
  if (std::string fault = is_write ? lines.write(offset / 16, moment(t)) : lines.read(offset / 16, moment(t)); !fault.empty()) {
    fault += fmt::format(" (shared offset {})", offset);
    fail(t, std::move(fault), site);
  }
}

void Scheduler::on_yield() {
  const IgnoreAccesses ignore;
  if (!spec_.random || random_() % 4 != 0) return;
  Thread& t = *running_;
  make_ready(t);
  leave(t, false);
}

std::string Scheduler::deadlock_report() const {
  std::string text = fmt::format("{}: deadlock, no thread can run", spec_.kernel);
  for (const auto& cta : ctas_) {
    if (cta->live == 0) continue;
    text += fmt::format("; CTA ({}, {}):", cta->x, cta->y);
    int first = 0;
    for (int i = 0; i < spec_.threads; ++i) {  // runs of threads that wait for the same
      const Thread& t = cta->threads[static_cast<std::size_t>(i)];
      const Thread* after = i + 1 < spec_.threads ? &cta->threads[static_cast<std::size_t>(i + 1)] : nullptr;
      if (after != nullptr && after->state == t.state &&
          (t.state == State::exited || (t.site.file != nullptr && after->site.file != nullptr && same_site(t.site, after->site)))) {
        continue;
      }
      const Warp& warp = cta->warps[static_cast<std::size_t>(t.position.warp)];
      const std::string what = t.state == State::exited       ? "exited"
                               : t.state == State::at_barrier ? "wait at barrier " + text_of(t.site)
                                                              : fmt::format("wait in {} {}", name_of(warp.op), text_of(t.site));
      text += first == i ? fmt::format(" thread {} {},", i, what) : fmt::format(" threads {}..{} {},", first, i, what);
      first = i + 1;
    }
    text.pop_back();
  }
  return text;
}

}  // namespace w4moe::lockstep
