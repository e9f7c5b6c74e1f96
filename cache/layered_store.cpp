#include "cache/layered_store.hpp"

#include <map>

namespace w4moe::cache {

LayeredStore::LayeredStore(std::shared_ptr<MemoryStore> memory, std::shared_ptr<DiskStore> disk,
                           std::vector<std::shared_ptr<DiskStore>> read_only,
                           std::shared_ptr<SharedStats> stats, bool backfill)
    : memory_(std::move(memory)),
      disk_(std::move(disk)),
      read_only_(std::move(read_only)),
      stats_(std::move(stats)),
      backfill_(backfill) {}

std::optional<Entry> LayeredStore::find(const EntryName& name) {
  if (auto entry = memory_->get(name)) {
    stats_->add(&Stats::hit_memory);
    return entry;
  }
  if (disk_) {
    if (auto entry = disk_->get(name)) {
      stats_->add(&Stats::hit_disk);
      memory_->put(*entry);
      return entry;
    }
  }
  for (const auto& layer : read_only_) {
    auto entry = layer->get(name);
    if (!entry) continue;
    stats_->add(&Stats::hit_readonly);
    memory_->put(*entry);
    if (backfill_ && disk_) disk_->put(*entry);
    return entry;
  }
  return std::nullopt;
}

std::optional<Entry> LayeredStore::get(const EntryName& name) {
  auto entry = find(name);
  if (!entry) stats_->add(&Stats::miss);
  return entry;
}

void LayeredStore::put(const Entry& entry) {
  memory_->put(entry);
  if (disk_) disk_->put(entry);
}

std::vector<StoredEntry> LayeredStore::list() {
  std::map<EntryName, StoredEntry> all;
  const auto add = [&all](Store& store) {
    for (StoredEntry& entry : store.list()) all.try_emplace(entry.name, std::move(entry));
  };
  if (disk_) add(*disk_);
  for (const auto& layer : read_only_) add(*layer);
  add(*memory_);  // last: the disk layers know more of an entry
  std::vector<StoredEntry> out;
  for (auto& [name, entry] : all) out.push_back(std::move(entry));
  return out;
}

bool LayeredStore::remove(const EntryName& name) {
  const bool in_memory = memory_->remove(name);
  const bool on_disk = disk_ && disk_->remove(name);
  return in_memory || on_disk;
}

}  // namespace w4moe::cache
