// What is known about each 16 bytes of a CTA's shared memory, from the accesses that go through ops.h: copies in flight, and who
// wrote and read last, for a happens-before check among copies, matrix loads and stores, wgmmas and 16-byte accesses. Plain C++
// loads and stores cannot be seen here (AddressSanitizer sees those that touch a copy in flight, ThreadSanitizer all).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/prelude.h"
#include "runtime/lockstep/clocks.hpp"

namespace w4moe::lockstep {

class SharedLines {
 public:
  explicit SharedLines(const Clocks& clocks) : clocks_(clocks) {}
  void reset(std::int64_t bytes) { lines_.assign(static_cast<std::size_t>(ceil_div(bytes, 16)), Line{}); }

  /// Each returns what is wrong, or an empty string. `line` is the offset into shared memory divided by 16.
  std::string copy_issued(std::int64_t line, int thread);
  /// `by`: the thread that has waited for its copy, or the agent that stands for the mbarrier that counts it. `bulk` copies are
  /// made by the asynchronous proxy, others by the generic one.
  void copy_landed(std::int64_t line, const Stamp& by, bool bulk);
  std::string write(std::int64_t line, int thread, const char* what);
  std::string read(std::int64_t line, int thread);
  /// Read by an agent on behalf of a thread: wgmma.
  std::string read_async(std::int64_t line, int thread, const Stamp& agent);

 private:
  struct Line {
    int in_flight = -1;          // thread whose copy is under way
    bool async_write = false;    // last written by the asynchronous proxy
    Stamp write;
    std::vector<Stamp> reads;    // since that write; those that a later one implies are dropped
  };
  std::string conflict(const Line& line, int thread, const char* what) const;
  std::string stale(const Line& line, int thread, const char* what) const;

  const Clocks& clocks_;
  std::vector<Line> lines_;
};

}  // namespace w4moe::lockstep
