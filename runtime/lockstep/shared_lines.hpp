// What is known about each 16 bytes of a CTA's shared memory, from the accesses that go through ops.h: copies in flight, and
// who wrote and read since the last barrier: a happens-before check among copies, matrix loads and 16-byte accesses. Plain C++ loads and stores cannot be seen here (AddressSanitizer sees those that touch a copy in flight, ThreadSanitizer all).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/prelude.h"

namespace w4moe::lockstep {

/// When something happened: the barriers that the CTA, and the warp_syncs that the warp had passed.
struct Moment {
  int thread = -1;
  int warp = -1;
  std::uint32_t barriers = 0;
  std::uint32_t warp_syncs = 0;
};

class SharedLines {
 public:
  void reset(std::int64_t bytes) { lines_.assign(static_cast<std::size_t>(ceil_div(bytes, 16)), Line{}); }

  /// Each returns what is wrong, or an empty string. `line` is the offset into shared memory divided by 16.
  std::string copy_issued(std::int64_t line, const Moment& now);
  void copy_landed(std::int64_t line, const Moment& now);
  std::string write(std::int64_t line, const Moment& now);
  std::string read(std::int64_t line, const Moment& now);

 private:
  struct Line {
    int in_flight = -1;     // thread whose copy is under way
    Moment write;
    Moment read;
    bool many_readers = false;  // warps other than read.warp read it too in the same interval between barriers
    int other_reader = -1;
  };
  static std::string conflict(const Line& line, const Moment& now, const char* what);
  std::vector<Line> lines_;
};

}  // namespace w4moe::lockstep
