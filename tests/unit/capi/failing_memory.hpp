// Host memory that runs out on demand.
#pragma once

namespace w4moe::test {

/// Calls of operator new on this thread that still succeed; -1: no limit.
extern thread_local long allocations_left;

}  // namespace w4moe::test
