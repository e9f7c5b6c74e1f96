// What the `cache` command does beside get and put: verify, prune, copy, explain.
#pragma once

#include "cache/disk_store.hpp"
#include "cache/prune.hpp"

namespace w4moe::cache {

struct VerifyReport {
  struct Damage {
    std::string path;  ///< relative to the root
    std::string reason;
    bool removed = false;
  };
  std::uint64_t checked = 0;  ///< entries read
  std::uint64_t bytes = 0;
  std::vector<Damage> damaged;
};

/// Reads every entry and checks it as a hit would. `remove_damaged` has no effect on a read-only store. io if the
/// directory is missing or refused.
Result<VerifyReport> verify(DiskStore& store, bool remove_damaged = false);

/// See prune.hpp. invalid_argument for a read-only store unless dry_run; io if the directory is missing or refused.
Result<PruneReport> prune(DiskStore& store, const PruneOptions& options);

struct CopyReport {
  std::uint64_t copied = 0;
  std::uint64_t present = 0;        ///< the target had a valid one already
  std::vector<std::string> failed;  ///< a text for each entry that could not be read or written
};

/// Copies every valid entry, for export, import and the merge of directories. io if `from` is missing or refused.
Result<CopyReport> copy_entries(DiskStore& from, DiskStore& to);

struct NearestEntry {
  EntryName name;
  std::vector<KeyDifference> differences;  ///< left = asked for, right = what the entry has
};

/// The stored entry whose key differs from `key_text` in the fewest fields: the likely reason of a miss.
std::optional<NearestEntry> nearest_entry(DiskStore& store, std::string_view key_text);

}  // namespace w4moe::cache
