// What a layer of the cache can do. No call of a store fails: the worst that a broken cache does is to miss.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/entry.hpp"

namespace w4moe::cache {

/// Gets each warning text, from any thread, while no mutex is held. Each store gives each kind of warning once.
using WarningFn = std::function<void(const std::string&)>;

/// One stored entry, as `list` shows it.
struct StoredEntry {
  EntryName name;
  std::uint64_t bytes = 0;       ///< file size
  std::int64_t last_used_s = 0;  ///< Unix time of the last use, correct to an hour; 0 in memory
  std::string path;              ///< relative to the root of the store; empty in memory
};

/// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  /// The entry, verified; nothing if there is none that can be trusted.
  virtual std::optional<Entry> get(const EntryName& name) = 0;
  /// Best effort. Whoever puts keeps their entry: there is never a need to read it back.
  virtual void put(const Entry& entry) = 0;
  /// In the order of their names. Unverified: names and sizes only.
  virtual std::vector<StoredEntry> list() = 0;
  /// True if an entry of exactly this name was there and is now gone.
  virtual bool remove(const EntryName& name) = 0;
};

}  // namespace w4moe::cache
