// manifest.lock.json beside a folder of kernels that is to be shipped: what was in it when it was built.
#pragma once

#include "cache/disk_store.hpp"

namespace w4moe::cli {

inline constexpr const char* kLockFileName = "manifest.lock.json";

/// Lists every entry of the folder. The same entries give the same bytes.
Status write_lock_file(const std::string& folder);

/// Entries that the folder's lock file lists and the folder lacks. Nothing where there is no lock file; corrupt for one that
/// cannot be read.
Result<std::vector<std::string>> missing_from_lock(cache::DiskStore& store);

}  // namespace w4moe::cli
