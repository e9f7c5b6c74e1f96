#include "cache/kernel_cache.hpp"

namespace w4moe::cache {
namespace {

LayeredStore make_layers(const CacheOptions& options) {
  const auto stats = std::make_shared<SharedStats>();
  std::shared_ptr<DiskStore> disk;
  std::vector<std::shared_ptr<DiskStore>> read_only;
  if (options.mode != CacheMode::off) {
    DiskOptions reading = options.disk;
    reading.read_only = true;
    if (options.mode == CacheMode::on && !options.disk.root.empty())
      disk = std::make_shared<DiskStore>(options.disk, stats);
    if (options.mode == CacheMode::readonly && !options.disk.root.empty())
      read_only.push_back(std::make_shared<DiskStore>(reading, stats));
    for (const std::string& dir : options.read_only_dirs) {
      reading.root = dir;
      read_only.push_back(std::make_shared<DiskStore>(reading, stats));
    }
  }
  return {std::make_shared<MemoryStore>(options.max_memory_bytes), std::move(disk), std::move(read_only), stats,
          options.backfill};
}

LockWait with_warn(LockWait wait, WarningFn warn) {
  wait.warn = std::move(warn);
  return wait;
}

}  // namespace

KernelCache::KernelCache(CacheOptions options)
    : lock_wait_(options.lock_wait), store_(make_layers(options)), flight_(store_, with_warn(options.lock_wait, options.disk.warn)) {}

KernelCache::~KernelCache() { flush_stats(); }

RangeLock KernelCache::compile_place(int slots) {
  DiskStore* const disk = store_.disk();
  return disk != nullptr ? disk->take_place(slots, lock_wait_) : RangeLock();
}

void KernelCache::flush_stats() {
  if (DiskStore* disk = store_.disk()) {
    const Stats unsaved = store_.stats().take_unsaved();
    if (unsaved != Stats{}) merge_stats(*disk, unsaved);
  }
}

}  // namespace w4moe::cache
