// The list of what a folder of kernels must hold, so that an image can be verified.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/disk_store.hpp"

namespace w4moe::cli {

/// In the folder itself. The lists of shards stand side by side ("manifest.lock.2of8.json"), so that folders merge by copying.
inline constexpr const char* kLockFileName = "manifest.lock.json";
std::string shard_lock_name(int shard, int shards);

/// Lists the entries of `folder` for which `listed` is true (null: all) in `file`, ordered by key: the same entries give the same
/// bytes. Written anew only where it changes.
Status write_lock_file(const std::string& folder, const std::string& file, const std::function<bool(const cache::EntryName&)>& listed = {});

/// What a folder lacks and has against lists.
struct LockDifference {
  std::vector<std::string> files;     ///< the lists that were read
  std::vector<std::string> missing;   ///< listed, but not there
  std::vector<std::string> changed;   ///< there with other bytes
  std::vector<std::string> unlisted;  ///< there, but not listed
};

/// `file` empty: every list in the folder; without one, nothing is missing or unlisted. corrupt for a file that is no list.
Result<LockDifference> compare_with_lock(cache::DiskStore& store, const std::string& file = {});

}  // namespace w4moe::cli
