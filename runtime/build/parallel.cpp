#include "runtime/build/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace w4moe {

void for_each_index(int count, int jobs, const std::function<bool(int)>& body) {
  std::atomic<int> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&] {
    while (!stop.load()) {
      const int i = next.fetch_add(1);
      if (i >= count) return;
      if (!body(i)) stop.store(true);
    }
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < std::min(count, jobs); ++t) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads: fewer compiles at a time
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace w4moe
