// Layers of a checkpoint: found by the names of their tensors, read by family, checked against the config, cut for a rank.
#include "w4moe/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "generator/problem/errors.hpp"
#include "runtime/files/checkpoint_config.hpp"
#include "runtime/files/checkpoint_index.hpp"
#include "runtime/files/layer_families.hpp"

namespace w4moe {
namespace {

constexpr std::string_view kExperts = "experts.";

using Tensors = std::vector<const FileTensor*>;

/// N of the last "layers.N." in a prefix. Layers of a draft head count for themselves.
i64 layer_number(std::string_view prefix) {
  constexpr std::string_view kLayers = "layers.";
  if (prefix.starts_with("mtp.") || prefix.find(".mtp.") != std::string_view::npos) return -1;
  for (std::size_t at = prefix.rfind(kLayers); at != std::string_view::npos; at = at == 0 ? std::string_view::npos : prefix.rfind(kLayers, at - 1)) {
    if (at > 0 && prefix[at - 1] != '.') continue;
    i64 number = -1;
    const char* const begin = prefix.data() + at + kLayers.size();
    const char* const end = prefix.data() + prefix.size();
    const auto [stop, error] = std::from_chars(begin, end, number);
    if (error == std::errc() && stop != end && *stop == '.' && number >= 0) return number;
  }
  return -1;
}

bool is_code_dtype(std::string_view dtype) { return dtype == "U8" || dtype == "I8" || dtype == "F4" || dtype == "I32"; }

/// The dtype of experts that nobody quantised to 4 bits; empty where some tensor looks like codes, or none like weights.
std::string unquantised_dtype(const Tensors& tensors) {
  std::string dtype;
  for (const FileTensor* tensor : tensors) {
    const std::string_view name = tensor->name;
    if (name.ends_with(".weight_packed") || name.ends_with(".qweight") || name.ends_with("_blocks")) return {};
    const bool is_weight = name.ends_with(".weight") || name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj");
    if (!is_weight) continue;
    if (is_code_dtype(tensor->dtype)) return {};
    dtype = tensor->dtype;
  }
  return dtype;
}

/// "model.layers.3.mlp" -> "model.layers.*.mlp".
std::string starred(std::string_view name) {
  std::string text;
  std::size_t begin = 0;
  while (begin <= name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    text += fmt::format("{}{}", begin == 0 ? "" : ".", is_number ? "*" : part);
    begin = end + 1;
  }
  return text;
}

std::string kind_of_skipped(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("shared_expert")) return "shared expert";
  if (has(".gate.") || has("router") || has("e_score_correction_bias")) return "router";
  if (has(".experts.")) return "experts of an unknown kind";
  return "other";
}

void mix(XXH3_state_t* state, std::string_view text) {
  const u64 length = text.size();
  XXH3_128bits_update(state, &length, sizeof(length));
  XXH3_128bits_update(state, text.data(), text.size());
}

/// Names, dtypes, shapes, and some bytes of each tensor: enough to tell another checkpoint, without reading this one.
std::string fingerprint(const LayerFile& layer, const Tensors& tensors) {
  constexpr i64 kSampleBytes = 64;
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  mix(&state, layer.family);
  mix(&state, std::to_string(layer.source.zero_add));
  for (const FileTensor* tensor : tensors) {
    mix(&state, tensor->name);
    mix(&state, tensor->dtype);
    mix(&state, fmt::format("{}", fmt::join(tensor->shape, ",")));
    const i64 sample = std::min(kSampleBytes, tensor->bytes);
    for (const i64 at : {i64{0}, (tensor->bytes - sample) / 2, tensor->bytes - sample}) {
      mix(&state, std::string_view(reinterpret_cast<const char*>(tensor->data) + at, static_cast<std::size_t>(sample)));
    }
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

struct Checkpoint::Impl {
  std::string path;
  CheckpointFiles files;
  CheckpointConfig config;
  std::vector<CheckpointEntry> layers;
  std::map<std::string, Tensors> tensors;  ///< by prefix; in the order of their names
  Tensors others;

  Status find_layers();
  Result<const CheckpointEntry*> entry(const std::string& layer) const;
  std::string list_layers() const;
};

Status Checkpoint::Impl::find_layers() {
  for (const SafetensorsFile& file : files.shards) {
    for (const FileTensor& tensor : file.tensors()) {
      const std::size_t length = expert_prefix_length(tensor.name);
      if (length == 0) {
        others.push_back(&tensor);
      } else {
        tensors[tensor.name.substr(0, length)].push_back(&tensor);
      }
    }
  }
  if (tensors.empty()) {
    return invalid_argument("{}: no expert tensors found: no name holds 'experts.' and an expert's number, gate_up_proj or down_proj{}", path,
                            others.empty() ? std::string{} : fmt::format(" (there is '{}')", others.front()->name));
  }
  for (auto& [prefix, list] : tensors) {
    std::sort(list.begin(), list.end(), [](const FileTensor* a, const FileTensor* b) { return a->name < b->name; });
    CheckpointEntry entry;
    entry.prefix = prefix;
    entry.number = layer_number(prefix);
    entry.tensors = static_cast<i64>(list.size());
    for (const FileTensor* tensor : list) entry.bytes += tensor->bytes;
    entry.other_dtype = unquantised_dtype(list);
    layers.push_back(std::move(entry));
  }
  std::stable_sort(layers.begin(), layers.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return static_cast<u64>(a.number) < static_cast<u64>(b.number);  // those without a number come last
  });
  return {};
}

std::string Checkpoint::Impl::list_layers() const {
  constexpr std::size_t kListed = 8;
  std::vector<std::string> some;
  for (const CheckpointEntry& entry : layers) {
    if (some.size() == kListed) return fmt::format("{}, ... ({} in all)", fmt::join(some, ", "), layers.size());
    some.push_back(entry.prefix.substr(0, entry.prefix.size() - kExperts.size()));
  }
  return fmt::format("{}", fmt::join(some, ", "));
}

Result<const CheckpointEntry*> Checkpoint::Impl::entry(const std::string& layer) const {
  const bool is_number = !layer.empty() && layer.find_first_not_of("0123456789") == std::string::npos;
  const std::string prefix = normal_expert_prefix(layer);
  std::vector<const CheckpointEntry*> found;
  for (const CheckpointEntry& entry : layers) {
    if (is_number ? std::to_string(entry.number) == layer : entry.prefix == prefix) found.push_back(&entry);
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) return invalid_argument("{}: no layer '{}' with experts (layers: {})", path, layer, list_layers());
  return invalid_argument("{}: layer {} is {} as well as {}: name one by its prefix", path, layer, found[0]->prefix, found[1]->prefix);
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  Result<CheckpointFiles> files = open_checkpoint_files(path);
  if (!files) return files.error();
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->files = std::move(*files);
  Result<CheckpointConfig> config = parse_checkpoint_config(impl->files.config, impl->files.hf_quant_config, impl->files.folder);
  if (!config) return config.error();
  impl->config = std::move(*config);
  if (Status s = impl->find_layers(); !s) return s.error();
  return Checkpoint(std::move(impl));
}

const std::string& Checkpoint::path() const { return impl_->path; }

const std::vector<CheckpointEntry>& Checkpoint::layers() const { return impl_->layers; }

std::vector<SkippedTensors> Checkpoint::skipped() const {
  std::map<std::string, SkippedTensors> kinds;
  for (const FileTensor* tensor : impl_->others) {
    SkippedTensors& kind = kinds[starred(tensor->name)];
    kind.tensors += 1;
    kind.bytes += tensor->bytes;
  }
  std::vector<SkippedTensors> list;
  for (auto& [name, kind] : kinds) {
    kind.name = name;
    kind.kind = kind_of_skipped(name);
    list.push_back(std::move(kind));
  }
  return list;
}

Result<CheckpointLayer> Checkpoint::layer(const std::string& name, const Shard& shard) const {
  const Result<const CheckpointEntry*> entry = impl_->entry(name);
  if (!entry) return entry.error();
  if (!(*entry)->other_dtype.empty()) {
    return unsupported("{}: its experts are {}, not quantised to 4 bits (accepted: MXFP4, NVFP4, INT4)", (*entry)->prefix, (*entry)->other_dtype);
  }
  const Tensors& tensors = impl_->tensors.at((*entry)->prefix);
  Result<TensorTable> table = TensorTable::of_layer((*entry)->prefix, tensors);
  if (!table) return table.error();
  LayerFile file;
  if (Status s = read_family(*table, file, read_hints(impl_->config)); !s) return s.error();
  if (Status s = apply_checkpoint_config(impl_->config, file); !s) return s.error();
  for (const SafetensorsFile& shard_file : impl_->files.shards) {
    if (Status s = read_layer_metadata(shard_file.metadata(), file.problem); !s) return s.error();
  }
  CheckpointLayer layer;
  layer.prefix = file.prefix;
  layer.family = file.family;
  layer.shard = shard;
  layer.total_experts = file.problem.shape.experts;
  layer.fingerprint = fingerprint(file, tensors);
  Result<ShardedLayer> part = shard_layer(file.problem, file.source, shard);
  if (!part) return Error{part.error().code, fmt::format("{}: {}", file.prefix, part.error().message)};
  layer.problem = std::move(part->problem);
  layer.source = std::move(part->source);
  layer.first_expert = part->first_expert;
  layer.files = impl_;
  return layer;
}

}  // namespace w4moe
