// Flags -> where kernels come from.
#pragma once

#include <memory>

#include "cache/disk_store.hpp"
#include "runtime/config.hpp"
#include "tools/cli/console.hpp"
#include "tools/cli/options.hpp"
#include "w4moe/build.hpp"

namespace w4moe::cli {

/// The options of the flags, which must be good (check_flags); messages of the library go to the console, which must outlive them.
KernelOptions kernel_options(const KernelFlags& flags, Console& console);

/// invalid_argument for a flag of these that cannot be read.
Status check_flags(const KernelFlags& flags);

/// Absolute, with ~ left to the shell.
std::string absolute_path(const std::string& path);

/// The cache directory of the flags and the environment, or a folder that is only looked at. invalid_argument where there is no
/// directory (kernels are then kept in memory only).
Result<std::unique_ptr<cache::DiskStore>> open_cache(const KernelFlags& flags, const std::string& readonly, Console& console);

/// The entry whose key begins with these digits: invalid_argument where there is none or more than one.
Result<cache::Entry> find_entry(cache::DiskStore& store, const std::string& digits);

/// Likewise, or the entry of a file.
Result<cache::Entry> named_entry(cache::DiskStore& store, const std::string& file_or_digits);

/// The metadata of an entry, or an empty object; never an error.
std::string metadata_text(const cache::Entry& entry, const char* field);

}  // namespace w4moe::cli
