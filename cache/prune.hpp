// Removal of entries: by the size limit after a put, and by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/disk_root.hpp"

namespace w4moe::cache {

struct PruneOptions {
  std::optional<std::uint64_t> max_bytes;  ///< drop the least recently used until the rest is not larger
  std::optional<std::int64_t> max_age_s;   ///< drop what was last used longer ago
  /// Drop entries whose key has another value, or none, for one of these labels (abi, bundle, ...): other versions.
  std::vector<KeyField> current;
  bool other_schemas = false;       ///< drop ROOT/v<N> of other cache schemas
  std::int64_t keep_younger_s = 0;  ///< max_bytes leaves what was used so recently, even above the limit
  bool dry_run = false;
};

struct PrunedItem {
  std::string path;  ///< relative to the root
  std::uint64_t bytes = 0;
  std::string reason;  ///< "max-size", "max-age", "other-version", "corrupt", "stale-temp" or "other-schema"
};

struct PruneReport {
  std::vector<PrunedItem> removed;  ///< with dry_run: what would be
  std::uint64_t removed_bytes = 0;
  std::uint64_t kept_bytes = 0;
  std::uint64_t kept_entries = 0;
};

/// Temporary files of writers that died are removed too. An entry that was replaced or used meanwhile stays. Processes
/// that have loaded or opened an entry keep what they have. `root_path` is where `root` was opened.
PruneReport prune(const DiskRoot& root, const std::string& root_path, const PruneOptions& options);

}  // namespace w4moe::cache
