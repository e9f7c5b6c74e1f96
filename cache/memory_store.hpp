// The layer in memory: entries of this process, least recently used out first.
#pragma once

#include <list>
#include <map>
#include <mutex>

#include "cache/store.hpp"

namespace w4moe::cache {

class MemoryStore final : public Store {
 public:
  /// Holds up to `max_bytes` of payload and text, and always the newest entry.
  explicit MemoryStore(std::uint64_t max_bytes = std::uint64_t{256} << 20) : max_bytes_(max_bytes) {}

  std::optional<Entry> get(const EntryName& name) override;
  void put(const Entry& entry) override;
  std::vector<StoredEntry> list() override;
  bool remove(const EntryName& name) override;

 private:
  struct Slot {
    Entry entry;
    std::list<EntryName>::iterator age;
  };
  using Slots = std::map<EntryName, Slot>;

  Slots::iterator find(const EntryName& name);
  void erase(Slots::iterator it);

  const std::uint64_t max_bytes_;
  std::mutex mutex_;
  Slots slots_;
  std::list<EntryName> ages_;  ///< the newest in front
  std::uint64_t bytes_ = 0;
};

}  // namespace w4moe::cache
