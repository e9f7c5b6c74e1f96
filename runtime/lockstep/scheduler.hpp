// Runs the threads of a grid: one fiber each, switched at the collectives only (and, under the random schedule, at atomics).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/lockstep/abi.h"
#include "runtime/lockstep/collectives.hpp"
#include "runtime/lockstep/fiber.hpp"
#include "runtime/lockstep/shared_block.hpp"
#include "runtime/lockstep/shared_lines.hpp"

namespace w4moe::lockstep {

using Entry = void (*)(const void* args);

struct GridSpec {
  std::string kernel;          ///< name in reports
  Entry entry = nullptr;
  const void* args = nullptr;
  std::int64_t grid_x = 1;
  std::int64_t grid_y = 1;
  int threads = 32;            ///< per CTA, whole warps
  std::int64_t shared_bytes = 0;
  int resident_ctas = 1;       ///< CTAs whose threads are interleaved
  bool random = false;         ///< seeded random order of threads and CTAs, else ascending
  std::uint64_t seed = 0;
};

struct GridStats {
  std::uint64_t switches = 0;
  std::uint64_t barriers = 0;
  std::uint64_t warp_ops = 0;
};

/// Fibers and shared memory are kept from launch to launch. One scheduler runs at a time in a process.
class Scheduler {
 public:
  Scheduler();
  ~Scheduler();

  /// Runs the grid to its end. Returns an empty string, or a report that names CTA, thread, place and fault.
  std::string run(const GridSpec& spec);

  const GridStats& stats() const { return stats_; }

  /// The table that kernels call; it serves the scheduler that is running.
  static Host& host();

 private:
  enum class State : std::uint8_t { ready, in_warp_op, at_barrier, exited };

  struct PendingCopy {
    void* dst = nullptr;
    int group = 0;
    unsigned char data[16] = {};
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
  struct Cta {
    std::int64_t x = 0;
    std::int64_t y = 0;
    int live = 0;
    int at_barrier = 0;
    std::uint32_t barriers = 0;
    Site barrier_site{nullptr, 0};
    int barrier_first = -1;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    SharedLines lines;
    std::unique_ptr<SharedBlock> shared;
    char order_token[2] = {};
  };

  static void fiber_main(void* thread);
  static Scheduler& active();
  bool start_cta(Cta& cta, std::int64_t index);
  void finish_thread(Thread& thread);
  void abandon_threads();
  void release_barrier(Cta& cta);
  void make_ready(Thread& thread);
  Thread* take_ready();
  void leave(Thread& thread, bool done);
  [[noreturn]] void fail(Thread& thread, std::string&& what, Site site);
  std::string where(const Thread& thread, Site site) const;
  std::string deadlock_report() const;
  Moment moment(const Thread& thread) const;
  std::int64_t shared_offset(const Thread& thread, const void* p) const;

  void on_barrier(Site site);
  void on_warp_op(WarpOp op, void* operand, Site site);
  void on_copy_issue(void* dst, const void* src, int valid_bytes, const unsigned char* data, Site site);
  void on_copy_commit();
  const LandedCopy* on_copy_retire(int open_groups);
  void on_shared_access(const void* p, bool is_write, Site site);
  void on_yield();

  GridSpec spec_;
  GridStats stats_;
  std::vector<std::unique_ptr<Cta>> ctas_;
  std::unique_ptr<Fiber> main_;
  Thread* running_ = nullptr;
  std::vector<Thread*> ready_;   // a ring under the ascending schedule
  std::size_t ready_head_ = 0;
  std::size_t ready_count_ = 0;
  std::mt19937_64 random_;
  std::string report_;
  char order_begin_ = 0;
  char order_end_ = 0;
};

}  // namespace w4moe::lockstep
