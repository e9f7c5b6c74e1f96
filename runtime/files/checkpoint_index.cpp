#include "runtime/files/checkpoint_index.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"
#include "runtime/files/mapped_file.hpp"
#include "runtime/files/tensor_table.hpp"
#include "runtime/weights/parallel.hpp"

namespace w4moe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr int kMaxDepth = 8;

Error corrupt(const std::string& file, const std::string& what) { return Error{ErrorCode::corrupt, fmt::format("{}: {}", file, what)}; }

/// Empty where there is no such file.
Result<std::string> text_of(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::string{};
  const Result<MappedFile> file = map_file(path.string());
  if (!file) return file.error();
  return std::string(reinterpret_cast<const char*>(file->bytes.data()), file->bytes.size());
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

Result<std::vector<SafetensorsFile>> open_all(const fs::path& folder, const std::vector<std::string>& names, const std::string& named_by) {
  std::vector<std::optional<Result<SafetensorsFile>>> opened(names.size());
  parallel_for(0, static_cast<i64>(names.size()), [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) opened[static_cast<std::size_t>(i)] = SafetensorsFile::open((folder / names[static_cast<std::size_t>(i)]).string());
  });
  std::vector<SafetensorsFile> files;
  for (std::optional<Result<SafetensorsFile>>& file : opened) {
    if (!*file) return Error{file->error().code, file->error().message + (named_by.empty() ? "" : " (named by " + named_by + ")")};
    files.push_back(std::move(**file));
  }
  return files;
}

Status check_index(const std::map<std::string, std::string>& index, const std::vector<std::string>& names, const std::vector<SafetensorsFile>& shards,
                   const std::string& index_path) {
  for (const auto& [tensor, file] : index) {
    const auto at = static_cast<std::size_t>(std::lower_bound(names.begin(), names.end(), file) - names.begin());
    if (shards[at].find(tensor) == nullptr) return corrupt(index_path, fmt::format("names tensor '{}' in {}, which does not hold it", tensor, file));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const FileTensor& tensor : shards[i].tensors()) {
      const auto at = index.find(tensor.name);
      if (at == index.end()) {
        if (expert_prefix_length(tensor.name) == 0) continue;  // not ours to judge
        return corrupt(index_path, fmt::format("does not name the expert tensor '{}', which {} holds", tensor.name, names[i]));
      }
      if (at->second != names[i]) return corrupt(index_path, fmt::format("tensor '{}' is in {} and in {}", tensor.name, at->second, names[i]));
    }
  }
  return {};
}

Result<CheckpointFiles> open_indexed(const fs::path& folder, const fs::path& index_path) {
  const Result<std::string> text = text_of(index_path);
  if (!text) return text.error();
  const Result<std::map<std::string, std::string>> index = parse_index(*text, index_path.string());
  if (!index) return index.error();
  std::set<std::string> unique;
  for (const auto& [tensor, file] : *index) unique.insert(file);
  const std::vector<std::string> names(unique.begin(), unique.end());
  Result<std::vector<SafetensorsFile>> shards = open_all(folder, names, index_path.filename().string());
  if (!shards) return shards.error();
  if (Status s = check_index(*index, names, *shards, index_path.string()); !s) return s.error();
  CheckpointFiles files;
  files.shards = std::move(*shards);
  return files;
}

/// Without an index: model.safetensors, or the only file of its kind.
Result<CheckpointFiles> open_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kIndexName, error)) return open_indexed(folder, folder / kIndexName);
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") names.push_back(it->path().filename().string());
  }
  if (error) return Error{ErrorCode::io, fmt::format("{}: cannot be listed: {}", folder.string(), error.message())};
  std::sort(names.begin(), names.end());
  if (std::binary_search(names.begin(), names.end(), std::string(kSingleName))) names = {std::string(kSingleName)};
  if (names.size() != 1) {
    return invalid_argument("{}: no {}, and {} *.safetensors files (accepted: an index with its shards, {}, or exactly one file)", folder.string(), kIndexName,
                            names.size(), kSingleName);
  }
  Result<std::vector<SafetensorsFile>> shards = open_all(folder, names, {});
  if (!shards) return shards.error();
  CheckpointFiles files;
  files.shards = std::move(*shards);
  return files;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_index(std::string_view text, const std::string& name) {
  std::set<std::string> seen;
  std::string repeated;
  // Tensor names are the keys of the second level, which JSON itself would let repeat.
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 2 && !seen.insert(parsed.get<std::string>()).second && repeated.empty()) {
      repeated = parsed.get<std::string>();
    }
    return depth < kMaxDepth;
  };
  const Json json = Json::parse(text, watch, false);
  if (json.is_discarded() || !json.is_object()) return corrupt(name, "is no JSON object");
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) return corrupt(name, "has no object 'weight_map'");
  if (!repeated.empty()) return corrupt(name, fmt::format("names '{}' twice", repeated));
  std::map<std::string, std::string> index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      return corrupt(name, fmt::format("the file of tensor '{}' is no plain file name", tensor));
    }
    index.emplace(tensor, file.get<std::string>());
  }
  if (index.empty()) return corrupt(name, "'weight_map' is empty");
  return index;
}

Result<CheckpointFiles> open_checkpoint_files(const std::string& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  const bool is_index = !is_folder && std::string_view(path).ends_with(".index.json");
  if (!is_folder && !is_index) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    CheckpointFiles files;
    files.shards.push_back(std::move(*file));
    return files;
  }
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  Result<CheckpointFiles> files = is_folder ? open_folder(folder) : open_indexed(folder, path);
  if (!files) return files;
  files->folder = folder.string();
  for (const auto& [name, into] : {std::pair("config.json", &files->config), std::pair("hf_quant_config.json", &files->hf_quant_config)}) {
    Result<std::string> text = text_of(folder / name);
    if (!text) return text.error();
    *into = std::move(*text);
  }
  return files;
}

}  // namespace w4moe
