// The cache on disk: the user's own directory, or one that is only read.
#pragma once

#include <mutex>

#include "cache/disk_root.hpp"
#include "cache/lock.hpp"
#include "cache/stats.hpp"
#include "cache/warning.hpp"

namespace w4moe::cache {

/// Any failure is a miss or a no-op, counted, and warned of once with the path and the variable that moves it.
/// The directory is opened at the first use and made at the first put.
class DiskStore final : public Store {
 public:
  explicit DiskStore(DiskOptions options, std::shared_ptr<SharedStats> stats = std::make_shared<SharedStats>());

  std::optional<Entry> get(const EntryName& name) override;
  void put(const Entry& entry) override;
  std::vector<StoredEntry> list() override;
  bool remove(const EntryName& name) override;

  /// A put that says what went wrong, and does not warn; for export and the like.
  Status publish(const Entry& entry);
  /// Waits for the right to build `key`; see lock.hpp. An unusable directory gives a lock that is not held.
  BuildLock lock_for_build(const Key& key, const LockWait& wait);
  /// Waits for one of the places in which this machine compiles; see lock.hpp.
  RangeLock take_place(int slots, const LockWait& wait);
  /// The open tree, or the reason why there is none (io). Used by prune, verify and stats.
  Result<std::shared_ptr<const DiskRoot>> root();

  const DiskOptions& options() const { return options_; }
  const std::shared_ptr<SharedStats>& stats() const { return stats_; }

 private:
  std::optional<Entry> get_file(const DiskRoot& root, const EntryFile& file);
  int try_publish(const Entry& entry, const Bytes& file, std::string& why);
  void limit_size(const DiskRoot& root, std::uint64_t added_bytes);
  DiskRoot::Opened open_root(bool create);
  /// The tree to read from, or null, with a warning if there is one that must not be used.
  std::shared_ptr<const DiskRoot> readable_root();
  void forget_root();
  void warn(const std::string& kind, const std::string& what);

  const DiskOptions options_;
  const std::shared_ptr<SharedStats> stats_;
  Warner warner_;
  std::mutex mutex_;
  std::shared_ptr<const DiskRoot> root_;
  bool scanned_ = false;             ///< a put has measured the directory
  std::uint64_t bytes_to_scan_ = 0;  ///< what may still be put before it is measured again
};

/// Adds counters to ROOT/v1/stats/totals.json. False if that was not possible now.
bool merge_stats(DiskStore& store, const Stats& unsaved);
/// The totals on disk; zeros if there are none.
Stats read_total_stats(DiskStore& store);

}  // namespace w4moe::cache
