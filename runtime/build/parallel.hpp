// A loop over indices on a few threads.
#pragma once

#include <functional>

namespace w4moe {

/// Calls body(i) for i in 0..count-1 on at most `jobs` threads (on the calling one where that is enough) until all are done or one
/// call returns false. The body must not throw. Threads that the system refuses are done without.
void for_each_index(int count, int jobs, const std::function<bool(int)>& body);

}  // namespace w4moe
