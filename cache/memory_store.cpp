#include "cache/memory_store.hpp"

namespace w4moe::cache {

MemoryStore::Slots::iterator MemoryStore::find(const EntryName& name) {
  if (!name.builder.empty()) return slots_.find(name);
  auto best = slots_.end();
  for (auto it = slots_.lower_bound(name); it != slots_.end() && it->first.key == name.key; ++it)
    if (best == slots_.end() || builder_less(best->first.builder, it->first.builder)) best = it;
  return best;
}

void MemoryStore::erase(Slots::iterator it) {
  bytes_ -= it->second.entry.file_bytes();
  ages_.erase(it->second.age);
  slots_.erase(it);
}

std::optional<Entry> MemoryStore::get(const EntryName& name) {
  const std::lock_guard guard(mutex_);
  const auto it = find(name);
  if (it == slots_.end()) return std::nullopt;
  ages_.splice(ages_.begin(), ages_, it->second.age);
  return it->second.entry;
}

void MemoryStore::put(const Entry& entry) {
  const EntryName name = entry.name();
  const std::lock_guard guard(mutex_);
  if (const auto old = slots_.find(name); old != slots_.end()) erase(old);
  ages_.push_front(name);
  slots_.emplace(name, Slot{entry, ages_.begin()});
  bytes_ += entry.file_bytes();
  while (bytes_ > max_bytes_ && slots_.size() > 1) erase(slots_.find(ages_.back()));
}

std::vector<StoredEntry> MemoryStore::list() {
  const std::lock_guard guard(mutex_);
  std::vector<StoredEntry> out;
  for (const auto& [name, slot] : slots_) out.push_back({name, slot.entry.file_bytes(), 0, {}});
  return out;
}

bool MemoryStore::remove(const EntryName& name) {
  const std::lock_guard guard(mutex_);
  const auto it = slots_.find(name);
  if (it == slots_.end()) return false;
  erase(it);
  return true;
}

}  // namespace w4moe::cache
