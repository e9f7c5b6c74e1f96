// Layer files put together in memory, and what must come out of them.
#pragma once

#include <cstring>
#include <map>
#include <stdexcept>

#include "runtime/files/layer_file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"

namespace w4moe {

using test::int4_format;
using test::packed;
using test::small_problem;

inline bool has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos) {
      UNSCOPED_INFO("'" << part << "' not in: " << text);
      return false;
    }
  }
  return true;
}

/// A file being put together in memory.
struct FileMaker {
  std::vector<FileTensor> tensors;
  std::vector<std::vector<std::byte>> owned;
  std::map<std::string, std::string> metadata;

  void add(const std::string& name, const std::string& dtype, std::vector<i64> shape, const void* data) {
    i64 bytes = safetensors_dtype_bits(dtype);
    for (const i64 dim : shape) bytes *= dim;
    tensors.push_back(FileTensor{name, dtype, std::move(shape), static_cast<const std::byte*>(data), bytes / 8});
  }
  template <class T>
  void add_values(const std::string& name, const std::string& dtype, std::vector<i64> shape, const std::vector<T>& values) {
    owned.emplace_back(values.size() * sizeof(T));
    std::memcpy(owned.back().data(), values.data(), owned.back().size());
    add(name, dtype, std::move(shape), owned.back().data());
  }
  FileTensor& at(const std::string& name) {
    for (FileTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    throw std::runtime_error("no tensor " + name);
  }
  std::vector<std::byte> bytes() const {
    const Result<std::string> header = safetensors_header(tensors, metadata);
    if (!header) throw std::runtime_error(header.error().message);
    std::vector<std::byte> all(header->size());
    std::memcpy(all.data(), header->data(), header->size());
    for (const FileTensor& tensor : tensors) all.insert(all.end(), tensor.data, tensor.data + tensor.bytes);
    return all;
  }
  std::string message(const std::string& prefix = {}) const {
    const std::vector<std::byte> all = bytes();
    const Result<LayerFile> layer = read_layer({*SafetensorsFile::parse(all, "f")}, prefix);
    return layer ? std::string{} : layer.error().message;
  }
};

inline constexpr Projection kAll[] = {Projection::gate, Projection::up, Projection::down};

inline SyntheticOptions per_expert() {
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::separate;
  options.per_expert_tensors = true;
  options.bias_type = SourceType::f32;
  return options;
}

inline const SourceMatrix& matrix_of(const SourceWeights& s, Projection p) { return p == Projection::gate ? s.gate : p == Projection::up ? s.up : s.down; }

/// The checkpoint's problem and packed bytes are those of the layer it was made from.
inline void check_file(const FileMaker& file, const Problem& problem, const std::vector<std::byte>& expected, const char* family) {
  const std::vector<std::byte> all = file.bytes();
  Result<LayerFile> layer = read_layer({*SafetensorsFile::parse(all, "f")});
  INFO((layer ? std::string{} : layer.error().message));
  REQUIRE(layer);
  CHECK(layer->family == family);
  CHECK(layer->problem.shape.hidden == problem.shape.hidden);
  CHECK(layer->problem.shape.intermediate == problem.shape.intermediate);
  CHECK(layer->problem.shape.experts == problem.shape.experts);
  CHECK(to_string(layer->problem.format) == to_string(problem.format));
  CHECK(layer->problem.has_bias == problem.has_bias);
  CHECK(is_gated(layer->problem.activation) == is_gated(problem.activation));
  layer->problem.shape = problem.shape;
  layer->problem.compact_tail = problem.compact_tail;
  CHECK(packed(layer->problem, layer->source) == expected);
}

inline FileMaker gpt_oss_file(const SyntheticLayer& layer, const Problem& problem) {
  const i64 experts = problem.shape.experts;
  const i64 hidden = problem.shape.hidden;
  const i64 features = problem.shape.intermediate;
  FileMaker file;
  const std::string prefix = "model.layers.3.mlp.experts.";
  file.add(prefix + "gate_up_proj_blocks", "U8", {experts, 2 * features, hidden / 32, 16}, layer.source.gate_up.codes[0].data);
  file.add(prefix + "gate_up_proj_scales", "U8", {experts, 2 * features, hidden / 32}, layer.source.gate_up.scales[0].data);
  file.add(prefix + "gate_up_proj_bias", "BF16", {experts, 2 * features}, layer.source.gate_up.bias[0].data);
  file.add(prefix + "down_proj_blocks", "U8", {experts, hidden, features / 32, 16}, layer.source.down.codes[0].data);
  file.add(prefix + "down_proj_scales", "U8", {experts, hidden, features / 32}, layer.source.down.scales[0].data);
  file.add(prefix + "down_proj_bias", "BF16", {experts, hidden}, layer.source.down.bias[0].data);
  file.add_values<u16>("model.layers.3.mlp.router.weight", "BF16", {1}, {0});
  return file;
}

inline Problem gpt_oss_problem() {
  Problem problem = small_problem(64, 96, 3, kMxfp4, Activation::swiglu_oai);
  problem.has_bias = true;
  return problem;
}

}  // namespace w4moe
