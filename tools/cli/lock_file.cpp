#include "tools/cli/lock_file.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/cli/files.hpp"

namespace w4moe::cli {

using Json = nlohmann::ordered_json;

Status write_lock_file(const std::string& folder) {
  cache::DiskOptions options;
  options.root = folder;
  options.read_only = true;
  cache::DiskStore store(options);
  Json document = {{"schema", "w4moe.lock/1"}, {"cache_schema", cache::kEntryVersion}, {"entries", Json::array()}};
  for (const cache::StoredEntry& entry : store.list()) {
    document["entries"].push_back({{"key", entry.name.key.hex()}, {"nvrtc", entry.name.builder}, {"bytes", entry.bytes}, {"path", entry.path}});
  }
  const std::string path = folder + "/" + kLockFileName;
  const std::string text = document.dump(2) + "\n";
  if (const Result<std::string> before = read_text(path); before && *before == text) return {};
  const std::string half = path + ".new";
  if (Status s = write_text(half, text); !s) return s;
  std::error_code error;
  std::filesystem::rename(half, path, error);
  if (error) return Error{ErrorCode::io, fmt::format("cannot rename {} to {}: {}", half, path, error.message())};
  return {};
}

Result<std::vector<std::string>> missing_from_lock(cache::DiskStore& store) {
  const std::string path = store.options().root + "/" + kLockFileName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::vector<std::string>{};
  const Result<std::string> text = read_text(path);
  if (!text) return text.error();
  const Json document = Json::parse(*text, nullptr, false);
  const Json entries = document.is_object() ? document.value("entries", Json()) : Json();
  if (!entries.is_array()) return Error{ErrorCode::corrupt, fmt::format("{} is no lock file: it has no array 'entries'", path)};
  std::set<std::string> present;
  for (const cache::StoredEntry& entry : store.list()) present.insert(entry.path);
  std::vector<std::string> missing;
  for (const Json& entry : entries) {
    const bool named = entry.is_object() && entry.contains("path") && entry["path"].is_string();
    const std::string name = named ? entry["path"].get<std::string>() : std::string("an entry without a path");
    if (present.count(name) == 0) missing.push_back(name);
  }
  return missing;
}

}  // namespace w4moe::cli
