#include "tools/cli/lock_file.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/sha256.hpp"
#include "generator/render/bundle.hpp"
#include "tools/cli/files.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "w4moe.lock/1";

Result<std::string> digest_of(const std::string& path) {
  const Result<std::string> bytes = read_text(path);
  if (!bytes) return bytes.error();
  std::string text;
  for (const std::uint8_t byte : cache::sha256(*bytes)) text += fmt::format("{:02x}", byte);
  return text;
}

cache::DiskStore reader(const std::string& folder) {
  cache::DiskOptions options;
  options.root = folder;
  options.read_only = true;
  return cache::DiskStore(std::move(options));
}

std::vector<std::string> lists_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = item.path().filename().string();
    const bool is_list = name.rfind("manifest.lock.", 0) == 0 && name.size() > 5 && name.compare(name.size() - 5, 5, ".json") == 0;
    if (is_list) files.push_back(item.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// path -> sha256 of a list's entries.
Status read_list(const std::string& file, std::map<std::string, std::string>& listed) {
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  const Json document = Json::parse(*text, nullptr, false);
  const bool known = document.is_object() && document.value("schema", Json()) == kSchema && document.contains("entries") && document["entries"].is_array();
  if (!known) return Error{ErrorCode::corrupt, fmt::format("{} is no lock file (accepted: what 'w4moe build' writes, schema {})", file, kSchema)};
  for (const Json& entry : document["entries"]) {
    const auto field = [&](const char* name) { return entry.is_object() && entry.contains(name) && entry[name].is_string() ? entry[name].get<std::string>() : std::string(); };
    if (field("path").empty()) return Error{ErrorCode::corrupt, fmt::format("{}: an entry without a path", file)};
    listed[field("path")] = field("sha256");
  }
  return {};
}

}  // namespace

std::string shard_lock_name(int shard, int shards) { return fmt::format("manifest.lock.{}of{}.json", shard, shards); }

Status write_lock_file(const std::string& folder, const std::string& file, const std::function<bool(const cache::EntryName&)>& listed) {
  cache::DiskStore store = reader(folder);
  Json document = {{"schema", kSchema}, {"cache_schema", cache::kEntryVersion}, {"version", W4MOE_VERSION}, {"bundle", bundle_digest()}, {"entries", Json::array()}};
  for (const cache::StoredEntry& entry : store.list()) {
    if (listed && !listed(entry.name)) continue;
    const Result<std::string> digest = digest_of(folder + "/" + entry.path);
    if (!digest) return digest.error();
    document["entries"].push_back({{"key", entry.name.key.hex()}, {"nvrtc", entry.name.builder}, {"bytes", entry.bytes}, {"sha256", *digest}, {"path", entry.path}});
  }
  const std::string text = document.dump(2) + "\n";
  if (const Result<std::string> before = read_text(file); before && *before == text) return {};
  const std::string half = file + ".new";
  if (Status s = write_text(half, text); !s) return s;
  std::error_code error;
  std::filesystem::rename(half, file, error);
  if (error) return Error{ErrorCode::io, fmt::format("cannot rename {} to {}: {}", half, file, error.message())};
  return {};
}

Result<LockDifference> compare_with_lock(cache::DiskStore& store, const std::string& file) {
  LockDifference difference;
  const std::string& folder = store.options().root;
  difference.files = file.empty() ? lists_in(folder) : std::vector<std::string>{file};
  if (difference.files.empty()) return difference;
  std::map<std::string, std::string> listed;
  for (const std::string& name : difference.files) {
    if (Status s = read_list(name, listed); !s) return s.error();
  }
  for (const cache::StoredEntry& entry : store.list()) {
    const auto it = listed.find(entry.path);
    if (it == listed.end()) {
      difference.unlisted.push_back(entry.path);
      continue;
    }
    const Result<std::string> digest = digest_of(folder + "/" + entry.path);
    if (!digest) return digest.error();
    if (!it->second.empty() && it->second != *digest) difference.changed.push_back(entry.path);
    listed.erase(it);
  }
  for (const auto& [path, digest] : listed) difference.missing.push_back(path);
  return difference;
}

}  // namespace w4moe::cli
