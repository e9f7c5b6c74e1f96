#include "runtime/files/layer_file.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/files/layer_families.hpp"

namespace w4moe {
namespace {

/// A number that is the whole text.
Result<float> metadata_float(const std::string& key, const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (text.empty() || *end != '\0') return Error{ErrorCode::invalid_argument, fmt::format("metadata '{}': '{}' is no number", key, text)};
  return value;
}

}  // namespace

Status read_layer_metadata(const std::map<std::string, std::string>& metadata, Problem& problem) {
  const auto text = [&](const char* key) { const auto at = metadata.find(key); return at == metadata.end() ? nullptr : &at->second; };
  if (const std::string* name = text("activation")) {
    const Result<Activation> activation = parse_activation(*name);
    if (!activation) return activation.error();
    if (is_gated(*activation) != is_gated(problem.activation)) {
      return Error{ErrorCode::invalid_argument, fmt::format("metadata 'activation': {} does not fit a layer {} gate rows", *name,
                                                            is_gated(problem.activation) ? "with" : "without")};
    }
    problem.activation = *activation;
    problem.params = default_params(*activation);
  }
  for (const auto& [key, to] : {std::pair("alpha", &problem.params.alpha), std::pair("beta", &problem.params.beta)}) {
    if (const std::string* value = text(key)) {
      const Result<float> number = metadata_float(key, *value);
      if (!number) return number.error();
      *to = *number;
    }
  }
  if (const std::string* value = text("limit")) {
    problem.params.has_limit = *value == "none" ? 0 : 1;
    problem.params.limit = 0.0f;
    if (problem.params.has_limit != 0) {
      const Result<float> number = metadata_float("limit", *value);
      if (!number) return number.error();
      problem.params.limit = *number;
    }
  }
  return {};
}

Result<LayerFile> open_layer(const std::vector<std::string>& paths, const std::string& prefix) {
  std::vector<SafetensorsFile> files;
  for (const std::string& path : paths) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  return read_layer(std::move(files), prefix);
}

Result<LayerFile> read_layer(std::vector<SafetensorsFile> files, const std::string& prefix) {
  LayerFile layer;
  layer.files = std::move(files);
  Result<TensorTable> table = TensorTable::find_layer(layer.files, prefix);
  if (!table) return table.error();
  if (Status s = read_family(*table, layer); !s) return s.error();
  for (const SafetensorsFile& file : layer.files) {
    if (Status s = read_layer_metadata(file.metadata(), layer.problem); !s) return s.error();
  }
  return layer;
}

}  // namespace w4moe
