#include "tools/cli/kernel_source.hpp"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"
#include "tools/cli/files.hpp"

namespace w4moe::cli {

Status check_flags(const KernelFlags& flags) {
  if (flags.memory_limit.empty()) return {};
  const Result<std::uint64_t> bytes = cache::parse_size(flags.memory_limit);
  if (!bytes) return invalid_argument("--memory-limit: {}", bytes.error().message);
  return {};
}

KernelOptions kernel_options(const KernelFlags& flags, Console& console) {
  KernelOptions options;
  if (!flags.cache_dir.empty()) options.cache_dir = flags.cache_dir;
  if (!flags.nvrtc.empty()) options.nvrtc = flags.nvrtc;
  options.jobs = flags.jobs;
  if (const Result<std::uint64_t> bytes = cache::parse_size(flags.memory_limit); bytes) options.memory_bytes = *bytes;
  options.log = [&console](LogLevel level, const std::string& message) {
    switch (level) {
      case LogLevel::warning: return console.warning(message);
      case LogLevel::info: return console.info(message);
      case LogLevel::debug: return console.debug(message);
    }
  };
  return options;
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

Result<std::unique_ptr<cache::DiskStore>> open_cache(const KernelFlags& flags, const std::string& readonly, Console& console) {
  Result<Config> config = resolve_config(kernel_options(flags, console), process_environment);
  if (!config) return config.error();
  cache::DiskOptions disk = config->cache.disk;
  disk.warn = [&console](const std::string& message) { console.warning(message); };
  if (!readonly.empty()) {
    disk.root = absolute_path(readonly);
    disk.read_only = true;
  } else if (disk.root.empty()) {
    return invalid_argument("there is no cache directory: {} (set W4MOE_CACHE_DIR, or give --cache-dir)", config->cache_warning);
  }
  return std::make_unique<cache::DiskStore>(std::move(disk));
}

Result<cache::Entry> find_entry(cache::DiskStore& store, const std::string& digits) {
  const bool hex = !digits.empty() && digits.size() <= 64 && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hex) return invalid_argument("'{}' is no key (accepted: the first digits of one, 1 to 64 of 0-9 and a-f)", digits);
  std::vector<cache::EntryName> found;
  for (const cache::StoredEntry& entry : store.list()) {
    if (entry.name.key.hex().rfind(digits, 0) == 0) found.push_back(entry.name);
  }
  if (found.empty()) return invalid_argument("no entry of {} has a key that begins with {} (w4moe cache list shows them)", store.options().root, digits);
  const bool one_key = std::all_of(found.begin(), found.end(), [&](const cache::EntryName& name) { return name.key == found.front().key; });
  if (!one_key) return invalid_argument("{} entries of {} have keys that begin with {}: give more digits", found.size(), store.options().root, digits);
  // Of several builds of one kernel the newest, as a process without a compiler takes it.
  std::optional<cache::Entry> entry = store.get(cache::EntryName(found.front().key));
  if (!entry) return Error{ErrorCode::corrupt, fmt::format("the entry {} of {} is damaged", found.front().key.hex(), store.options().root)};
  return std::move(*entry);
}

Result<cache::Entry> named_entry(cache::DiskStore& store, const std::string& file_or_digits) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file_or_digits, ignored)) return find_entry(store, file_or_digits);
  Result<cache::Bytes> bytes = read_bytes(file_or_digits);
  if (!bytes) return bytes.error();
  Result<cache::Entry> entry = cache::decode_entry(std::move(*bytes));
  if (!entry) return Error{entry.error().code, fmt::format("{}: {}", file_or_digits, entry.error().message)};
  return entry;
}

std::string metadata_text(const cache::Entry& entry, const char* field) {
  const nlohmann::json parsed = nlohmann::json::parse(entry.metadata, nullptr, false);
  if (!parsed.is_object()) return {};
  const auto it = parsed.find(field);
  return it != parsed.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace w4moe::cli
