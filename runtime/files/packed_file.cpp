#include "runtime/files/packed_file.hpp"

#include <nlohmann/json.hpp>

#include "contract/layout_id.h"
#include "generator/problem/errors.hpp"
#include "runtime/files/safetensors.hpp"

namespace w4moe {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kVersionKey = "w4moe.packed";
constexpr std::string_view kTensorSuffix = "packed";

Error corrupt(const std::string& where, const std::string& what) { return Error{ErrorCode::corrupt, fmt::format("{}: {}", where, what)}; }

/// Required fields of an entry.
class Entry {
 public:
  Entry(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  i64 count(const char* name, i64 lowest) {
    const Json* at = find(name);
    constexpr u64 kHighest = u64{1} << 62;
    const bool good = at != nullptr && at->is_number_integer() && (!at->is_number_unsigned() || at->get<u64>() < kHighest) && at->get<i64>() >= lowest;
    if (!good) fault(name, fmt::format("expected a whole number, {} and more", lowest));
    return good ? at->get<i64>() : lowest;
  }
  float number(const char* name) {
    const Json* at = find(name);
    if (at == nullptr || !at->is_number()) fault(name, "expected a number");
    return at != nullptr && at->is_number() ? at->get<float>() : 0.0f;
  }
  bool flag(const char* name) {
    const Json* at = find(name);
    if (at == nullptr || !at->is_boolean()) fault(name, "expected true or false");
    return at != nullptr && at->is_boolean() && at->get<bool>();
  }
  std::string text(const char* name) {
    const Json* at = find(name);
    if (at == nullptr || !at->is_string()) fault(name, "expected a text");
    return at != nullptr && at->is_string() ? at->get<std::string>() : std::string{};
  }
  bool is_null(const char* name) {
    const auto at = json_.find(name);
    return at != json_.end() && at->is_null();
  }
  void fault(const char* name, const std::string& what) {
    if (status_) status_ = corrupt(where_, fmt::format("field '{}': {}", name, what));
  }
  Status status() const { return status_; }

 private:
  const Json* find(const char* name) const {
    const auto at = json_.find(name);
    return at == json_.end() ? nullptr : &*at;
  }

  const Json& json_;
  std::string where_;
  Status status_;
};

std::string layout_text(const Problem& problem) { return fmt::format("{:016x}", layout_id(weight_layout(problem))); }

bool same_problem(const Problem& a, const Problem& b) {
  return a.shape.hidden == b.shape.hidden && a.shape.intermediate == b.shape.intermediate && a.shape.experts == b.shape.experts &&
         a.format == b.format && a.activation == b.activation && a.params.alpha == b.params.alpha && a.params.beta == b.params.beta &&
         a.params.has_limit == b.params.has_limit && a.params.limit == b.params.limit && a.has_bias == b.has_bias;
}

bool same_rank(const RankOf& a, const RankOf& b) { return a.rank == b.rank && a.size == b.size; }

}  // namespace

std::string packed_entry(const CheckpointLayer& layer) {
  const Problem& p = layer.problem;
  const Json entry = {{"family", layer.family},
                      {"fingerprint", layer.fingerprint},
                      {"hidden", p.shape.hidden},
                      {"intermediate", p.shape.intermediate},
                      {"experts", p.shape.experts},
                      {"topk", p.shape.topk},
                      {"format", to_string(p.format)},
                      {"activation", std::string(to_string(p.activation))},
                      {"alpha", p.params.alpha},
                      {"beta", p.params.beta},
                      {"limit", p.params.has_limit != 0 ? Json(p.params.limit) : Json()},
                      {"bias", p.has_bias},
                      {"compact_tail", p.compact_tail},
                      {"tp_rank", layer.shard.tp.rank},
                      {"tp_size", layer.shard.tp.size},
                      {"ep_rank", layer.shard.ep.rank},
                      {"ep_size", layer.shard.ep.size},
                      {"first_expert", layer.first_expert},
                      {"total_experts", layer.total_experts},
                      {"layout_id", layout_text(p)}};
  return entry.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<PackedLayer> parse_packed_entry(const std::string& prefix, const std::string& text) {
  constexpr int kMaxDepth = 4;
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth < kMaxDepth; };
  const Json json = Json::parse(text, shallow, false);
  const std::string where = fmt::format("metadata of layer '{}'", prefix);
  if (json.is_discarded() || !json.is_object()) return corrupt(where, "is no JSON object");
  Entry e(json, where);
  PackedLayer layer;
  layer.prefix = prefix;
  layer.family = e.text("family");
  layer.fingerprint = e.text("fingerprint");
  Problem& p = layer.problem;
  p.name = prefix;
  p.shape.hidden = e.count("hidden", 1);
  p.shape.intermediate = e.count("intermediate", 1);
  p.shape.experts = e.count("experts", 1);
  p.shape.topk = e.count("topk", 1);
  p.shape.max_tokens = 1;
  const Result<QuantFormat> format = parse_format(e.text("format"));
  if (!format) e.fault("format", format.error().message);
  const Result<Activation> activation = parse_activation(e.text("activation"));
  if (!activation) e.fault("activation", activation.error().message);
  if (format) p.format = *format;
  if (activation) p.activation = *activation;
  p.params.alpha = e.number("alpha");
  p.params.beta = e.number("beta");
  p.params.has_limit = e.is_null("limit") ? 0 : 1;
  p.params.limit = p.params.has_limit != 0 ? e.number("limit") : 0.0f;
  p.has_bias = e.flag("bias");
  p.compact_tail = e.flag("compact_tail");
  layer.shard = Shard{{e.count("tp_rank", 0), e.count("tp_size", 1)}, {e.count("ep_rank", 0), e.count("ep_size", 1)}};
  layer.first_expert = e.count("first_expert", 0);
  layer.total_experts = e.count("total_experts", 1);
  const std::string stated_layout = e.text("layout_id");
  if (Status s = e.status(); !s) return s.error();
  if (Status s = validate(p); !s) return corrupt(where, s.error().message);
  if (layer.shard.tp.rank >= layer.shard.tp.size || layer.shard.ep.rank >= layer.shard.ep.size) return corrupt(where, "a rank is outside of its group");
  if (layer.first_expert > layer.total_experts - p.shape.experts) {
    return corrupt(where, fmt::format("experts {} and {} more do not lie in {}", layer.first_expert, p.shape.experts, layer.total_experts));
  }
  if (stated_layout != layout_text(p)) {
    return corrupt(where, fmt::format("layout {}, this library's is {}: pack the checkpoint again", stated_layout, layout_text(p)));
  }
  return layer;
}

Result<std::vector<PackedLayer>> packed_layers(const SafetensorsFile& file) {
  const auto version = file.metadata().find(std::string(kVersionKey));
  if (version == file.metadata().end()) return invalid_argument("{}: is no packed file: its metadata has no '{}'", file.name(), kVersionKey);
  if (version->second != kPackedVersion) {
    return unsupported("{}: packed form {} (accepted: {}); pack the checkpoint again", file.name(), version->second, kPackedVersion);
  }
  std::vector<PackedLayer> layers;
  for (const FileTensor& tensor : file.tensors()) {
    if (!std::string_view(tensor.name).ends_with(kTensorSuffix) || tensor.dtype != "U8" || tensor.shape.size() != 1) {
      return corrupt(file.name(), fmt::format("tensor '{}': expected U8 [bytes] under a name that ends with '{}'", tensor.name, kTensorSuffix));
    }
    const std::string prefix = tensor.name.substr(0, tensor.name.size() - kTensorSuffix.size());
    const auto entry = file.metadata().find(prefix);
    if (entry == file.metadata().end()) return corrupt(file.name(), fmt::format("no metadata for tensor '{}'", tensor.name));
    Result<PackedLayer> layer = parse_packed_entry(prefix, entry->second);
    if (!layer) return Error{layer.error().code, fmt::format("{}: {}", file.name(), layer.error().message)};
    layer->bytes = std::span(tensor.data, static_cast<std::size_t>(tensor.bytes));
    if (Status s = check_prepared(layer->problem, layer->bytes); !s) return Error{s.error().code, fmt::format("{}: layer '{}': {}", file.name(), prefix, s.error().message)};
    layers.push_back(std::move(*layer));
  }
  if (layers.empty()) return corrupt(file.name(), "holds no layer");
  return layers;
}

Result<PackedFile> PackedFile::open(const std::string& path) {
  Result<SafetensorsFile> read = SafetensorsFile::open(path);
  if (!read) return read.error();
  auto file = std::make_shared<const SafetensorsFile>(std::move(*read));
  Result<std::vector<PackedLayer>> layers = packed_layers(*file);
  if (!layers) return layers.error();
  PackedFile packed;
  packed.layers_ = std::move(*layers);
  packed.owner_ = std::move(file);
  return packed;
}

bool is_packed_form_of(const PackedLayer& packed, const CheckpointLayer& layer) {
  return packed.prefix == layer.prefix && packed.fingerprint == layer.fingerprint && same_rank(packed.shard.tp, layer.shard.tp) &&
         same_rank(packed.shard.ep, layer.shard.ep) && same_problem(packed.problem, layer.problem);
}

}  // namespace w4moe
