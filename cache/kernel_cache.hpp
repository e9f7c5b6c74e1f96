// The cache as the runtime and the tools use it: layers, single flight and statistics in one object.
#pragma once

#include "cache/location.hpp"
#include "cache/maintenance.hpp"
#include "cache/single_flight.hpp"

namespace w4moe::cache {

/// W4MOE_CACHE.
enum class CacheMode {
  on,
  readonly,  ///< the directories are read, never written
  off,       ///< memory only
};

struct CacheOptions {
  CacheMode mode = CacheMode::on;
  DiskOptions disk;  ///< an empty root = memory only; `warn` and `trust` hold for all layers
  std::vector<std::string> read_only_dirs;  ///< W4MOE_CACHE_READONLY_DIRS, in order
  bool backfill = false;
  LockWait lock_wait;  ///< `warn` is taken from `disk`
  std::uint64_t max_memory_bytes = std::uint64_t{256} << 20;
};

/// Thread-safe. Closing adds the statistics to those on disk.
class KernelCache {
 public:
  explicit KernelCache(CacheOptions options);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// Looks up, never builds, takes no lock.
  std::optional<Entry> get(const EntryName& name) { return store_.get(name); }
  Result<Entry> get_or_build(const EntryName& name, const BuildFn& build) {
    return flight_.get_or_build(name, build);
  }

  /// Held while a compile runs: at most `slots` of them at a time on this machine, as far as the processes share the
  /// directory. Not held where there is none.
  RangeLock compile_place(int slots);

  LayeredStore& store() { return store_; }
  Stats stats() const { return store_.stats().read(); }
  /// Adds what was counted since the last time to the totals on disk, if there is a directory.
  void flush_stats();

 private:
  const LockWait lock_wait_;
  LayeredStore store_;
  SingleFlight flight_;
};

}  // namespace w4moe::cache
