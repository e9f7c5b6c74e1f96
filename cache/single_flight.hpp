// Each kernel is built once: by one thread of a process, and by one process of a machine as far as locks reach.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "cache/layered_store.hpp"

namespace w4moe::cache {

/// Builds an entry. It may throw; that counts as a failure with code internal.
using BuildFn = std::function<Result<Entry>()>;

/// Thread-safe.
class SingleFlight {
 public:
  /// `store` must outlive this. `wait.warn` gets the messages of long waits.
  SingleFlight(LayeredStore& store, LockWait wait) : store_(store), wait_(std::move(wait)) {}

  /// The stored entry, or what `build` makes. All callers that ask meanwhile get the same result, an error included;
  /// a later call tries again. What was built is stored in all writable layers and returned as it is, never read
  /// back; nothing that failed is stored. internal if the built entry has another name than the one asked for.
  /// `build` must not ask for the same name.
  Result<Entry> get_or_build(const EntryName& name, const BuildFn& build);

 private:
  struct Flight {
    pid_t pid;  // a forked child must not wait for a thread of its parent
    std::optional<Result<Entry>> result;
  };

  Result<Entry> build_locked(const EntryName& name, const BuildFn& build);

  LayeredStore& store_;
  const LockWait wait_;
  std::mutex mutex_;
  std::condition_variable landed_;
  std::map<EntryName, std::shared_ptr<Flight>> flights_;
};

}  // namespace w4moe::cache
