// Who knows of what inside a CTA: vector clocks, for the happens-before check of shared memory. Besides the threads there are
// agents that work on their own: the copies that an mbarrier counts, the wgmmas of a warpgroup.
#pragma once

#include <cstdint>
#include <vector>

namespace w4moe::lockstep {

/// When something happened: a point in the life of a thread or agent, and the CTA barriers passed before.
struct Stamp {
  int slot = -1;            ///< thread, or an agent's slot; -1: never
  std::uint32_t tick = 0;
  std::uint32_t round = 0;
};

/// What a thread has let others know, on its way to them.
struct Known {
  std::vector<std::uint32_t> seen;     ///< tick of each slot
  std::vector<std::uint32_t> fenced;   ///< and what of it was made visible to asynchronous reads; empty where no fence was used
  std::uint32_t fenced_round = 0;
};

class Clocks {
 public:
  static constexpr int kAgents = 64;   ///< at most

  void reset(int threads);
  /// A slot for an agent, until the next reset.
  int add_agent();

  /// The present of a thread or agent.
  Stamp now(int slot) const { return {slot, tick_[static_cast<std::size_t>(slot)], round_}; }
  /// An agent does its next thing.
  Stamp step(int agent);

  /// Whether what is stamped is ordered ahead of what the thread does now.
  bool knows(int thread, const Stamp& stamp) const;
  /// Whether it was also fenced, by whoever knew of it, ahead of that.
  bool knows_fenced(int thread, const Stamp& stamp) const;

  void release(int thread, Known& into);
  void acquire(int thread, const Known& from);
  /// Lets a thread know of an agent up to `tick`.
  void learn(int thread, int agent, std::uint32_t tick);
  void publish(int agent, Known& into) const;
  void fence(int thread);

  /// `count` threads meet: each knows what any of them knew.
  void meet(const int* threads, int count);
  /// All 32 lanes of a warp meet.
  void meet_warp(int first_thread);
  /// All threads of the CTA meet.
  void meet_all();

  int threads() const { return threads_; }

 private:
  std::uint32_t* seen(int thread) { return seen_.data() + static_cast<std::size_t>(thread) * capacity_; }
  const std::uint32_t* seen(int thread) const { return seen_.data() + static_cast<std::size_t>(thread) * capacity_; }
  std::uint32_t* fenced(int thread) { return fenced_.data() + static_cast<std::size_t>(thread) * capacity_; }
  const std::uint32_t* fenced(int thread) const { return fenced_.data() + static_cast<std::size_t>(thread) * capacity_; }

  int threads_ = 0;
  int slots_ = 0;              // threads and agents so far
  std::size_t capacity_ = 0;
  std::uint32_t round_ = 1;
  bool beyond_warps_ = false;  // a thread may know of threads outside of its warp other than by CTA barriers
  bool fences_ = false;
  std::vector<std::uint32_t> tick_;
  std::vector<std::uint32_t> seen_;
  std::vector<std::uint32_t> fenced_;
  std::vector<std::uint32_t> fenced_round_;
  std::vector<std::uint32_t> scratch_;
};

}  // namespace w4moe::lockstep
