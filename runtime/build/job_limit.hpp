// How many compiles a machine bears at a time.
#pragma once

#include <cstdint>

namespace w4moe {

/// Processors of this machine, at least 1.
int processors();

/// Memory that this process may count on: that of its cgroup or what the machine has free, whichever is less; 0 if neither is told.
std::uint64_t usable_memory_bytes();

/// `jobs`, cut down to the compiles that fit `memory_bytes` (0: usable_memory_bytes()); at least 1.
int bounded_jobs(int jobs, std::uint64_t memory_bytes);

}  // namespace w4moe
