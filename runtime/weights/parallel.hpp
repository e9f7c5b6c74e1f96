// A range of independent items over host threads.
#pragma once

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "contract/prelude.h"

namespace w4moe {

/// Threads to use: as asked, or as many as the machine has for 0.
inline i64 thread_count(int asked) {
  return asked > 0 ? asked : std::max<i64>(1, static_cast<i64>(std::thread::hardware_concurrency()));
}

/// Calls work(begin, end) for consecutive ranges that cover 0..count-1. The work must not throw, and its results must not depend
/// on how the range is cut. Where the system gives no more threads, the calling one does the rest.
template <class Work>
void parallel_for(int threads, i64 count, const Work& work) {
  const i64 parts = std::min(thread_count(threads), count);
  std::vector<std::thread> started;
  i64 begin = 0;
  for (i64 part = 1; part < parts; ++part) {
    const i64 end = begin + (count - begin) / (parts - part + 1);
    try {
      started.emplace_back([&work, begin, end] { work(begin, end); });
    } catch (const std::system_error&) {
      break;
    }
    begin = end;
  }
  if (begin < count) work(begin, count);
  for (std::thread& thread : started) thread.join();
}

}  // namespace w4moe
