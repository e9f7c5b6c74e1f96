// The directory tree of the disk cache, and the options that say how to treat it:
//
//   ROOT/CACHEDIR.TAG            backup tools pass a cache by
//   ROOT/v1/obj/ab/<62 hex>[-<builder>].cubin     one file per entry, see entry.hpp
//   ROOT/v1/tmp/                 half-written files
//   ROOT/v1/lock/00...ff, evict, stats            lock files, never removed
//   ROOT/v1/stats/totals.json
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/fs.hpp"
#include "cache/store.hpp"

namespace w4moe::cache {

inline constexpr std::uint64_t kDefaultMaxBytes = std::uint64_t{2} << 30;

struct DiskOptions {
  std::string root;          ///< absolute path
  bool read_only = false;    ///< nothing is written, touched, locked or removed
  bool public_read = false;  ///< new directories 0755, files 0644: for a directory to be shipped
  std::uint64_t max_bytes = kDefaultMaxBytes;  ///< soft limit of all entries; 0 = none
  Trust trust;
  WarningFn warn;
  PublishHook publish_hook;  ///< for tests
};

/// One entry file.
struct EntryFile {
  std::string shard;  ///< "ab"
  std::string file;   ///< "<62 hex>-12.4.131.cubin"
  EntryName name;
  struct stat info {};

  std::string path() const { return "v1/obj/" + shard + "/" + file; }
};

/// An open, trusted tree.
class DiskRoot {
 public:
  struct Opened {
    std::shared_ptr<const DiskRoot> root;
    int error = 0;
    std::string why;
  };
  /// Makes what is missing if `create` and not read only.
  static Opened open(const DiskOptions& options, bool create);

  static std::string shard_name(const Key& key) { return key.hex().substr(0, 2); }
  static std::string file_name(const EntryName& name);

  /// The directory of a shard.
  OpenedDir shard(const std::string& name, bool create) const;
  /// Every entry file, ordered by shard and name. Files with other names are passed over.
  std::vector<EntryFile> scan() const;
  /// The entry files of one key, the highest builder first.
  std::vector<EntryFile> files_of(const Key& key) const;
  /// Reads and verifies. `state` ok and `entry` set, or the reason. A file that is not the entry it is named is refused.
  struct ReadEntry {
    ReadFile::State state = ReadFile::State::absent;
    std::optional<Entry> entry;
    struct stat info {};
    std::string why;
  };
  ReadEntry read(const std::string& shard, const std::string& file, const EntryName& name) const;
  /// Stat-guarded.
  bool remove(const EntryFile& file) const;

  int base() const { return base_.get(); }  ///< ROOT
  int tmp() const { return tmp_.get(); }    ///< -1 if absent, as the next two
  int lock() const { return lock_.get(); }
  int stats() const { return stats_.get(); }
  bool writable() const { return tmp() >= 0 && lock() >= 0 && stats() >= 0; }
  mode_t file_mode() const { return file_mode_; }
  const Trust& trust() const { return trust_; }

 private:
  std::vector<EntryFile> scan_shard(const std::string& shard) const;

  UniqueFd base_, obj_, tmp_, lock_, stats_;
  mode_t dir_mode_ = 0700;
  mode_t file_mode_ = 0600;
  Trust trust_;
};

}  // namespace w4moe::cache
