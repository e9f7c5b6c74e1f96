// Memory, then the user's directory, then read-only directories in order.
#pragma once

#include "cache/disk_store.hpp"
#include "cache/memory_store.hpp"

namespace w4moe::cache {

class LayeredStore final : public Store {
 public:
  /// `disk` may be null (memory only). `backfill`: what a read-only directory has is also put on disk.
  LayeredStore(std::shared_ptr<MemoryStore> memory, std::shared_ptr<DiskStore> disk,
               std::vector<std::shared_ptr<DiskStore>> read_only, std::shared_ptr<SharedStats> stats,
               bool backfill = false);

  /// From the first layer that has it, and then in memory. Counts the hit or the miss.
  std::optional<Entry> get(const EntryName& name) override;
  /// get without counting a miss, for a caller that looks more than once.
  std::optional<Entry> find(const EntryName& name);
  /// In memory and on disk.
  void put(const Entry& entry) override;
  /// All layers, each name once.
  std::vector<StoredEntry> list() override;
  /// From memory and disk.
  bool remove(const EntryName& name) override;

  DiskStore* disk() const { return disk_.get(); }
  const std::vector<std::shared_ptr<DiskStore>>& read_only() const { return read_only_; }
  SharedStats& stats() const { return *stats_; }

 private:
  const std::shared_ptr<MemoryStore> memory_;
  const std::shared_ptr<DiskStore> disk_;
  const std::vector<std::shared_ptr<DiskStore>> read_only_;
  const std::shared_ptr<SharedStats> stats_;
  const bool backfill_;
};

}  // namespace w4moe::cache
