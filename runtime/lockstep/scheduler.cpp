#include "runtime/lockstep/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>

#if defined(W4MOE_LOCKSTEP_ASAN)
#include <sanitizer/asan_interface.h>
#endif

#if defined(W4MOE_LOCKSTEP_ASAN)
/// AddressSanitizer calls it before it reports: its stack has kernel and line, this has the thread.
extern "C" void __asan_on_error();
extern "C" void __asan_on_error() {
  const std::string thread = w4moe::lockstep::Scheduler::running_thread();
  if (!thread.empty()) std::fprintf(stderr, "lock-step device: %s\n", thread.c_str());
}
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
constexpr int kEverything = -1;  // copy_retire: also copies that were never committed

Scheduler* g_active = nullptr;

std::string check(const GridSpec& spec) {
  if (spec.threads <= 0 || spec.threads % kWarpLanes != 0 || spec.threads > 1024) {
    return fmt::format("{}: {} threads per CTA; a multiple of 32 up to 1024 is accepted", spec.kernel, spec.threads);
  }
  if (spec.grid_x <= 0 || spec.grid_y <= 0 || spec.shared_bytes < 0) {
    return fmt::format("{}: grid {} x {}, {} bytes of shared memory; at least 1 x 1 and 0 bytes are accepted", spec.kernel, spec.grid_x,
                       spec.grid_y, spec.shared_bytes);
  }
  if (spec.resident_ctas <= 0) return fmt::format("{}: {} resident CTAs; at least 1 is accepted", spec.kernel, spec.resident_ctas);
  return {};
}

}  // namespace

bool same_site(Site a, Site b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

std::string text_of(Site site) {
  if (site.file == nullptr) return "?";
  std::string_view file = site.file;
  const std::size_t slash = file.rfind('/');
  if (slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, site.line);
}

Scheduler::Scheduler() = default;
Scheduler::~Scheduler() = default;

Scheduler& Scheduler::active() { return *g_active; }

std::string Scheduler::running_thread() {
  return g_active != nullptr && g_active->running_ != nullptr ? g_active->where(*g_active->running_, {nullptr, 0}) : std::string();
}

std::string Scheduler::run(std::span<const GridSpec> grids, const Schedule& schedule) {
  const IgnoreAccesses ignore;
  for (const GridSpec& spec : grids) {
    if (const std::string fault = check(spec); !fault.empty()) return fault;
  }
  schedule_ = schedule;
  stats_ = {};
  report_.clear();
  random_.seed(schedule.seed);
  begin_grids(grids);

  main_ = std::make_unique<Fiber>();
  g_active = this;
  order_release(&order_begin_);
  run_until_done();
  if (!report_.empty()) abandon_threads();
  order_acquire(&order_end_);
  g_active = nullptr;
  return report_;
}

void Scheduler::begin_grids(std::span<const GridSpec> grids) {
  grids_.clear();
  for (const GridSpec& spec : grids) {
    Grid& grid = grids_.emplace_back();
    grid.spec = &spec;
    grid.index = grids_.size() - 1;
    grid.ctas = spec.grid_x * spec.grid_y;
    grid.order.resize(static_cast<std::size_t>(grid.ctas));
    std::iota(grid.order.begin(), grid.order.end(), std::int64_t{0});
    if (schedule_.random) std::shuffle(grid.order.begin(), grid.order.end(), random_);
  }
  for (auto& cta : ctas_) cta->live = 0;
}

void Scheduler::run_until_done() {
  while (report_.empty()) {
    attention_ = false;
    for (Grid& grid : grids_) {
      if (!grid.open) grid.open = may_open(grid);
      if (grid.open) start_ctas(grid);
    }
    if (!report_.empty()) return;
    if (std::all_of(grids_.begin(), grids_.end(), [](const Grid& grid) { return grid.done(); })) return;
    Thread* thread = take_ready();
    if (thread == nullptr) {
      if (land_one()) continue;
      report_ = deadlock_report();
      return;
    }
    running_ = thread;
    host().current = &thread->position;
    ++stats_.switches;
    Fiber::switch_to(*main_, *thread->fiber);
    running_ = nullptr;
    host().current = nullptr;
  }
}

bool Scheduler::may_open(const Grid& grid) const {
  if (grid.index == 0) return true;
  const Grid& before = grids_[grid.index - 1];
  if (grid.spec->overlaps) return before.signalled == before.ctas;
  return std::all_of(grids_.begin(), grids_.begin() + static_cast<std::ptrdiff_t>(grid.index), [](const Grid& g) { return g.done(); });
}

void Scheduler::start_ctas(Grid& grid) {
  while (grid.resident < grid.spec->resident_ctas && grid.started < grid.ctas) {
    if (!start_cta(grid, grid.order[static_cast<std::size_t>(grid.started)])) return;
    ++grid.started;
    ++grid.resident;
  }
}

Scheduler::Cta& Scheduler::free_cta() {
  for (auto& cta : ctas_) {
    if (cta->live == 0) return *cta;
  }
  return *ctas_.emplace_back(std::make_unique<Cta>());
}

bool Scheduler::start_cta(Grid& grid, std::int64_t index) {
  const GridSpec& spec = *grid.spec;
  Cta& cta = free_cta();
  cta.grid = &grid;
  cta.x = index % spec.grid_x;
  cta.y = index / spec.grid_x;
  cta.signalled = false;
  cta.at_barrier = 0;
  cta.barriers = 0;
  cta.barrier_first = -1;
  if (cta.shared == nullptr || cta.shared->bytes() != spec.shared_bytes || kFreshShared) {
    cta.shared = std::make_unique<SharedBlock>(spec.shared_bytes);
  }
  if (!cta.shared->ok()) {
    report_ = fmt::format("{}: no memory for {} bytes of shared memory", spec.kernel, spec.shared_bytes);
    return false;
  }
  cta.shared->reset();
  cta.clocks.reset(spec.threads);
  cta.lines.reset(spec.shared_bytes);
  cta.async_barriers.clear();
  cta.async_barriers.reserve(Clocks::kAgents);  // their addresses order threads for ThreadSanitizer
  cta.named_barriers.clear();
  cta.in_flight.clear();
  cta.warpgroups.assign(static_cast<std::size_t>(ceil_div(spec.threads, kWarpgroupThreads)), Warpgroup{});
  cta.warps.assign(static_cast<std::size_t>(spec.threads / kWarpLanes), Warp{});
  if (cta.threads.size() < static_cast<std::size_t>(spec.threads)) cta.threads.resize(static_cast<std::size_t>(spec.threads));
  for (int i = 0; i < spec.threads; ++i) {
    Thread& t = cta.threads[static_cast<std::size_t>(i)];
    t.position = {i, i % kWarpLanes, i / kWarpLanes, cta.x, cta.y, spec.grid_x, cta.shared->base(), spec.shared_bytes};
    t.cta = &cta;
    t.site = {nullptr, 0};
    t.copies.clear();
    t.open_group = 0;
    t.waits_for = -1;
    t.wgmma_fenced = false;
    t.wgmma_group = 0;
    t.sums.clear();
    t.operands.clear();
    if (t.fiber == nullptr) t.fiber = std::make_unique<Fiber>(kStackBytes);
    if (!t.fiber->ok()) {
      report_ = fmt::format("{}: no memory for the stack of thread {}", spec.kernel, i);
      return false;
    }
    t.fiber->prepare(&fiber_main, &t);
    ++cta.live;
    make_ready(t);
  }
  return true;
}

void Scheduler::fiber_main(void* thread) {
  ignore_accesses_begin();
  Scheduler& s = active();
  Thread& t = *static_cast<Thread*>(thread);
  const GridSpec& spec = *t.cta->grid->spec;
  const Entry entry = spec.entry;
  const void* args = spec.args;
  order_acquire(&s.order_begin_);
  s.acquire_finished_grids(*t.cta->grid);
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
  Grid& grid = *cta.grid;
  Warp& warp = cta.warps[static_cast<std::size_t>(t.position.warp)];
  ++warp.exited;
  if (!t.sums.empty()) fail(t, "exits with wgmmas that it has not waited for", t.site);
  if (warp.op != WarpOp::none) {
    fail(t, fmt::format("exits while lane {} of its warp waits in {} at {}", warp.first_lane, name_of(warp.op), text_of(warp.site)),
         t.site);
  }
  order_release(&grid.order_end);
  order_release(&order_end_);
  if (--cta.live > 0) {
    if (cta.at_barrier == cta.live) release_barrier(cta);
    return;
  }
  if (const std::string left = copies_left(cta); !left.empty()) fail(t, std::string(left), t.site);
  if (const std::int64_t past = cta.shared->overrun(); past >= 0) {
    fail(t, fmt::format("the CTA wrote past its {} bytes of shared memory, {} bytes behind the end", grid.spec->shared_bytes, past), t.site);
  }
  signal(cta);
  --grid.resident;
  ++grid.finished;
  attention_ = true;
  if (!grid.done()) return;
  for (auto& other : ctas_) {
    if (other->live == 0 || other->grid->index != grid.index + 1) continue;
    for (int i = 0; i < other->thread_count(); ++i) {
      Thread& waiting = other->threads[static_cast<std::size_t>(i)];
      if (waiting.state == State::at_grid_wait) make_ready(waiting);
    }
  }
}

/// Counts a CTA that lets the next grid begin, once.
void Scheduler::signal(Cta& cta) {
  if (cta.signalled) return;
  cta.signalled = true;
  if (++cta.grid->signalled == cta.grid->ctas) attention_ = true;
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

void Scheduler::make_ready(Thread& t) {
  t.state = State::ready;
  t.cta->grid->ready.push_back(&t);
}

Scheduler::Thread* Scheduler::take_ready() {
  if (schedule_.random && random_() % 16 == 0) land_one();  // in order, copies land as late as can be: when nothing else can happen
  std::size_t all = 0;
  for (const Grid& grid : grids_) all += grid.ready.size();
  if (all == 0) return nullptr;
  std::size_t pick = schedule_.random ? random_() % all : 0;
  for (auto grid = grids_.rbegin(); grid != grids_.rend(); ++grid) {  // the latest first: overlaps are as deep as they can be
    if (pick < grid->ready.size()) {
      std::swap(grid->ready[pick], grid->ready.front());
      Thread* t = grid->ready.front();
      grid->ready.pop_front();
      return t;
    }
    pick -= schedule_.random ? grid->ready.size() : 0;
  }
  return nullptr;
}

/// Continues another thread; the program's own stack where none can run, or where something has to be started.
void Scheduler::leave(Thread& t, bool done) {
  Thread* next = attention_ ? nullptr : take_ready();
  if (next == &t) return;
  running_ = next;
  host().current = next != nullptr ? &next->position : nullptr;
  ++stats_.switches;
  Fiber& from = *t.fiber;
  Fiber& to = next != nullptr ? *next->fiber : *main_;
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
  return fmt::format("{}, CTA ({}, {}) thread {} (warp {}, lane {}){}", t.cta->grid->spec->kernel, t.cta->x, t.cta->y, t.position.thread,
                     t.position.warp, t.position.lane, place);
}

std::string Scheduler::deadlock_report() const {
  std::string text = "deadlock, no thread can run";
  for (const auto& cta : ctas_) {
    if (cta->live == 0) continue;
    text += fmt::format("; {}, CTA ({}, {}):", cta->grid->spec->kernel, cta->x, cta->y);
    const auto wait_of = [&](const Thread& t) -> std::string {
      switch (t.state) {
        case State::exited: return "exited";
        case State::at_barrier: return "wait at barrier " + text_of(t.site);
        case State::at_named_barrier: return fmt::format("wait at named barrier {} ({} of {} threads are there) {}", t.waits_for,
                                                         cta->named_barriers[static_cast<std::size_t>(t.waits_for)].arrived.size(),
                                                         cta->named_barriers[static_cast<std::size_t>(t.waits_for)].threads, text_of(t.site));
        case State::at_async_barrier: {
          const AsyncBarrier& b = cta->async_barriers[static_cast<std::size_t>(t.waits_for)];
          return fmt::format("wait for phase {} of the mbarrier at shared offset {} ({} arrivals and {} bytes are missing) {}", b.phase, b.offset,
                             b.pending, b.bytes, text_of(t.site));
        }
        case State::in_wgmma: return "wait in wgmma for the other threads of the warpgroup " + text_of(t.site);
        case State::at_grid_wait: return "wait for the grid before at " + text_of(t.site);
        default: return fmt::format("wait in {} {}", name_of(cta->warps[static_cast<std::size_t>(t.position.warp)].op), text_of(t.site));
      }
    };
    int first = 0;
    std::string what = wait_of(cta->threads[0]);
    for (int i = 1; i <= cta->thread_count(); ++i) {  // runs of threads that wait for the same
      const std::string next = i < cta->thread_count() ? wait_of(cta->threads[static_cast<std::size_t>(i)]) : "";
      if (next == what) continue;
      text += first == i - 1 ? fmt::format(" thread {} {},", first, what) : fmt::format(" threads {}..{} {},", first, i - 1, what);
      first = i;
      what = next;
    }
    text.pop_back();
  }
  return text;
}

}  // namespace w4moe::lockstep
