// Runs the threads of grids: one fiber each, switched at the collectives only (and, under the random schedule, at atomics).
// scheduler.cpp holds grids, CTAs and the choice of who runs; scheduler_ops.cpp what the intrinsics do, scheduler_async.cpp and
// scheduler_wgmma.cpp those of sm_90.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/lockstep/abi.h"
#include "runtime/lockstep/collectives.hpp"
#include "runtime/lockstep/fiber.hpp"
#include "runtime/lockstep/shared_block.hpp"
#include "runtime/lockstep/shared_lines.hpp"

namespace w4moe::lockstep {

using Entry = void (*)(const void* args);

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWgmmaGroupsKept = 8;   ///< committed and not waited for, at most

struct GridSpec {
  std::string kernel;          ///< name in reports
  Entry entry = nullptr;
  const void* args = nullptr;  ///< alive until run() returns
  std::int64_t grid_x = 1;
  std::int64_t grid_y = 1;
  int threads = 32;            ///< per CTA, whole warps
  std::int64_t shared_bytes = 0;
  int resident_ctas = 1;       ///< CTAs whose threads are interleaved
  bool overlaps = false;       ///< may begin once every CTA of the grid before has called grid_launch_next or ended
};

struct Schedule {
  bool random = false;         ///< seeded random order of threads and CTAs, else ascending
  std::uint64_t seed = 0;
};

struct GridStats {
  std::uint64_t switches = 0;
  std::uint64_t barriers = 0;
  std::uint64_t warp_ops = 0;
};

/// Fibers are kept from run to run. One scheduler runs at a time in a process.
class Scheduler {
 public:
  Scheduler();
  ~Scheduler();

  /// Runs the grids of a stream to their end. Under the ascending schedule a grid that may overlap begins as early as it may, and
  /// goes before the one it overlaps. Returns an empty string, or a report that names kernel, CTA, thread, place and fault.
  std::string run(std::span<const GridSpec> grids, const Schedule& schedule);

  const GridStats& stats() const { return stats_; }

  /// The thread that is running in this process: "fc1.n8, CTA (3, 0) thread 5 (warp 0, lane 5)"; empty where none is.
  static std::string running_thread();

  /// The table that kernels call; it serves the scheduler that is running.
  static Host& host();

 private:
  enum class State : std::uint8_t { ready, in_warp_op, at_barrier, at_named_barrier, at_async_barrier, in_wgmma, at_grid_wait, exited };

  struct PendingCopy {
    void* dst = nullptr;
    int group = 0;
    unsigned char data[16] = {};
  };
  /// An accumulator that wgmmas under way write.
  struct PendingSums {
    float* d = nullptr;
    std::vector<float> value;
    int group = 0;           // the last that writes it
  };
  struct PendingOperand {
    const unsigned* a = nullptr;
    unsigned value[4] = {};
    int group = 0;
  };
  struct Cta;
  struct Thread {
    ThreadPosition position{};
    State state = State::exited;
    Site site{nullptr, 0};
    Cta* cta = nullptr;
    std::unique_ptr<Fiber> fiber;
    std::deque<PendingCopy> copies;
    int open_group = 0;      // group that copies join until the next commit
    LandedCopy landed{};
    int waits_for = -1;      // async or named barrier
    bool wgmma_fenced = false;
    int wgmma_group = 0;     // group that wgmmas join until the next commit
    std::uint32_t wgmma_ticks[kWgmmaGroupsKept] = {};  // of the agent, at each commit
    std::vector<PendingSums> sums;
    std::vector<PendingOperand> operands;
  };
  /// An mbarrier.
  struct AsyncBarrier {
    std::int64_t offset = 0;
    int expected = 0;
    int pending = 0;
    std::int64_t bytes = 0;      // announced and not landed
    std::uint32_t phase = 0;     // phases completed
    bool fenced = false;
    int agent = -1;              // the copies that it counts
    Known gathered, done;
    char order_token[2] = {};    // addresses for ThreadSanitizer
  };
  struct NamedBarrier {
    int threads = 0;
    Site site{nullptr, 0};
    std::vector<int> arrived;
    char order_token = 0;
  };
  /// What lands by itself and then counts at an mbarrier: a bulk copy, or the 16-byte copies of a thread that asked for that.
  struct InFlight {
    Thread* thread = nullptr;
    int barrier = -1;
    Site site{nullptr, 0};
    unsigned char* dst = nullptr;    // bulk
    std::vector<unsigned char> data;
    std::deque<PendingCopy> copies;  // of the thread
    int group = 0;
  };
  struct Warpgroup {
    Site site{nullptr, 0};
    int arrived = 0;
    int first = -1;
    int agent = -1;              // its wgmmas
    const WgmmaOperand* operands[kWarpgroupThreads] = {};
  };
  struct Warp {
    WarpOp op = WarpOp::none;
    Site site{nullptr, 0};
    int first_lane = -1;
    int arrived = 0;
    int exited = 0;
    std::uint32_t syncs = 0;
    void* operands[kWarpLanes] = {};
    char order_token[2] = {};  // addresses for ThreadSanitizer
  };
  struct Grid {
    const GridSpec* spec = nullptr;
    std::size_t index = 0;
    std::int64_t ctas = 0;
    std::int64_t started = 0;
    std::int64_t resident = 0;
    std::int64_t finished = 0;
    std::int64_t signalled = 0;  // CTAs that have called grid_launch_next or ended
    bool open = false;
    std::vector<std::int64_t> order;
    std::deque<Thread*> ready;
    char order_end = 0;
    bool done() const { return finished == ctas; }
  };
  struct Cta {
    Grid* grid = nullptr;
    std::int64_t x = 0;
    std::int64_t y = 0;
    int live = 0;
    bool signalled = false;
    int at_barrier = 0;
    std::uint32_t barriers = 0;  // passed
    Site barrier_site{nullptr, 0};
    int barrier_first = -1;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Clocks clocks;
    SharedLines lines{clocks};
    std::vector<AsyncBarrier> async_barriers;
    std::vector<NamedBarrier> named_barriers;
    std::deque<InFlight> in_flight;
    std::vector<Warpgroup> warpgroups;
    std::unique_ptr<SharedBlock> shared;
    char order_token[2] = {};
    int thread_count() const { return grid->spec->threads; }
  };

  static void fiber_main(void* thread);
  static Scheduler& active();

  void begin_grids(std::span<const GridSpec> grids);
  void run_until_done();
  bool may_open(const Grid& grid) const;
  void start_ctas(Grid& grid);
  bool start_cta(Grid& grid, std::int64_t index);
  Cta& free_cta();
  void finish_thread(Thread& thread);
  void signal(Cta& cta);
  void abandon_threads();
  void make_ready(Thread& thread);
  Thread* take_ready();
  void leave(Thread& thread, bool done);
  [[noreturn]] void fail(Thread& thread, std::string&& what, Site site);
  std::string where(const Thread& thread, Site site) const;
  std::string deadlock_report() const;

  void release_barrier(Cta& cta);
  void acquire_finished_grids(const Grid& grid);
  std::int64_t shared_offset(Thread& thread, const void* p, std::int64_t bytes, const char* what, Site site);
  int barrier_at(Thread& thread, const void* b, Site site);
  void complete_phases(Cta& cta, int barrier);
  void land(Cta& cta, const InFlight& flight);
  void land_of_thread(Thread& thread, int open_groups);
  bool land_one();
  std::string copies_left(const Cta& cta) const;
  void perform_wgmma(Cta& cta, int group, Site site);
  void on_named_barrier(int id, int threads, Site site);
  void on_async_barrier_init(const void* b, int arrivals, Site site);
  void on_async_barrier_init_fence();
  void on_async_barrier_arrive(const void* b, unsigned bytes, Site site);
  bool on_async_barrier_test(const void* b, unsigned parity, Site site);
  void on_async_barrier_wait(const void* b, unsigned parity, Site site);
  void on_copy_bulk(const BulkCopy& copy, Site site);
  void on_copy_arrive(const void* b, Site site);
  void on_fence_async_shared();
  void on_wgmma_fence();
  void on_wgmma_add(const WgmmaOperand& operand, Site site);
  void on_wgmma_commit();
  void on_wgmma_wait(int open_groups, Site site);
  void on_barrier(Site site);
  void on_warp_op(WarpOp op, void* operand, Site site);
  void on_copy_issue(void* dst, const unsigned char* data, Site site);
  void on_copy_commit();
  const LandedCopy* on_copy_retire(int open_groups);
  void on_shared_access(const void* p, bool is_write, Site site);
  void on_yield();
  void on_grid_wait(Site site);
  void on_grid_launch_next();
  void on_fail(const char* what, Site site);

  Schedule schedule_;
  GridStats stats_;
  std::deque<Grid> grids_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::unique_ptr<Fiber> main_;
  Thread* running_ = nullptr;
  bool attention_ = false;       // a CTA has ended, or a grid may begin: the program's own stack goes next
  std::mt19937_64 random_;
  std::string report_;
  char order_begin_ = 0;
  char order_end_ = 0;
};

/// "fc1.cuh:88"
std::string text_of(Site site);
bool same_site(Site a, Site b);

}  // namespace w4moe::lockstep
