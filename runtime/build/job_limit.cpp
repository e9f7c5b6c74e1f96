#include "runtime/build/job_limit.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

namespace w4moe {
namespace {

// A compile of NVRTC 13.0 takes 30 to 60 MiB beside the 60 MiB of the library itself; twice to four times that is allowed for.
constexpr std::uint64_t kCompileBytes = std::uint64_t{256} << 20;

/// A number in a one-line file of the kernel; 0 where there is none ("max" for no limit).
std::uint64_t number_in(const char* path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : 0;
}

std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string label;
  std::uint64_t kib = 0;
  std::string rest;
  while (file >> label >> kib) {
    if (label == "MemAvailable:") return kib << 10;
    std::getline(file, rest);
  }
  return 0;
}

}  // namespace

int processors() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::uint64_t usable_memory_bytes() {
  std::uint64_t least = 0;
  for (const std::uint64_t bytes : {available_bytes(), number_in("/sys/fs/cgroup/memory.max"), number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes")}) {
    if (bytes != 0 && (least == 0 || bytes < least)) least = bytes;
  }
  return least;
}

int bounded_jobs(int jobs, std::uint64_t memory_bytes) {
  if (jobs <= 1) return 1;
  const std::uint64_t bytes = memory_bytes != 0 ? memory_bytes : usable_memory_bytes();
  if (bytes == 0) return jobs;
  return static_cast<int>(std::clamp<std::uint64_t>(bytes / kCompileBytes, 1, static_cast<std::uint64_t>(jobs)));
}

}  // namespace w4moe
