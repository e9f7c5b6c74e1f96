// Ctrl-C as a question that long work can ask. A second one ends the process at once: the cache is whole at any moment.
#pragma once

namespace w4moe::cli {

/// While it lives, SIGINT and SIGTERM are noted instead of ending the process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// Since the first guard.
bool interrupted();

}  // namespace w4moe::cli
