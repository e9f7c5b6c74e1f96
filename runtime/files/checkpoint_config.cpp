#include "runtime/files/checkpoint_config.hpp"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

using Json = nlohmann::json;

/// A parser's own limits: deep nests are walked by recursion.
constexpr int kMaxDepth = 64;

Error fault(const std::string& file, const std::string& what) { return invalid_argument("{}: {}", file, what); }

Result<Json> parse_object(std::string_view text, const std::string& file) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth < kMaxDepth; };
  Json json = Json::parse(text, shallow, false);
  if (json.is_discarded() || !json.is_object()) return fault(file, "is no JSON object");
  return json;
}

/// Reads typed fields of one object; the first that has another type is the error.
class Fields {
 public:
  Fields(const Json& object, std::string file, std::string path) : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  const Json* find(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto at = object_.find(name);
      if (at == object_.end() || at->is_null()) continue;
      name_ = name;
      return &*at;
    }
    return nullptr;
  }
  void text(std::initializer_list<const char*> names, std::string& into) {
    const Json* at = find(names);
    if (at == nullptr) return;
    if (at->is_string()) into = at->get<std::string>();
    if (!at->is_string()) expected("a text");
  }
  void flag(std::initializer_list<const char*> names, std::optional<bool>& into) {
    const Json* at = find(names);
    if (at == nullptr) return;
    if (at->is_boolean()) into = at->get<bool>();
    if (!at->is_boolean()) expected("true or false");
  }
  /// Lists (a value a layer) are no statement on all layers.
  void count(std::initializer_list<const char*> names, i64 lowest, std::optional<i64>& into) {
    const Json* at = find(names);
    if (at == nullptr || at->is_array()) return;
    constexpr i64 kHighest = i64{1} << 40;
    if (at->is_number_integer() && (!at->is_number_unsigned() || at->get<u64>() <= static_cast<u64>(kHighest)) && at->get<i64>() >= lowest) {
      into = at->get<i64>();
    } else {
      expected(fmt::format("a whole number, {} and more", lowest));
    }
  }
  void number(std::initializer_list<const char*> names, std::optional<double>& into) {
    const Json* at = find(names);
    if (at == nullptr || at->is_array()) return;
    if (at->is_number()) into = at->get<double>();
    if (!at->is_number()) expected("a number");
  }
  void expected(const std::string& what) {
    if (status_) status_ = fault(file_, fmt::format("{}{}: expected {}", path_, name_, what));
  }
  Status status() const { return status_; }

 private:
  const Json& object_;
  std::string file_, path_, name_;
  Status status_;
};

/// -1 stands for one group a row.
void set_group(const std::optional<i64>& stated, QuantGroup& group) {
  if (stated) group.group_size = *stated == -1 ? kWholeRow : *stated;
}

Status read_compressed_groups(const Json& quant, const std::string& file, CheckpointConfig& config) {
  const auto groups = quant.find("config_groups");
  if (groups == quant.end()) return {};
  if (!groups->is_object()) return fault(file, "quantization_config.config_groups: expected an object");
  for (const auto& [name, entry] : groups->items()) {
    const std::string path = fmt::format("quantization_config.config_groups.{}.weights.", name);
    if (!entry.is_object()) return fault(file, path + ": expected an object");
    const auto weights = entry.find("weights");
    if (weights == entry.end() || !weights->is_object()) continue;
    QuantGroup group;
    Fields f(*weights, file, path);
    std::optional<i64> size;
    std::string type, strategy;
    f.count({"num_bits"}, 1, group.bits);
    f.count({"group_size"}, -1, size);
    f.flag({"symmetric"}, group.symmetric);
    f.text({"type"}, type);
    f.text({"strategy"}, strategy);
    if (Status s = f.status(); !s) return s;
    set_group(strategy == "channel" ? std::optional<i64>(-1) : size, group);
    if (!type.empty()) group.is_float = type == "float";
    config.groups.push_back(group);
  }
  return {};
}

Status read_quantization(const Json& quant, const std::string& file, CheckpointConfig& config) {
  config.quant_source = file;
  Fields f(quant, file, "quantization_config.");
  std::optional<bool> act_order, symmetric, zero_point;
  std::optional<i64> size;
  QuantGroup group;
  std::string algorithm;
  f.text({"quant_method"}, config.method);
  f.text({"checkpoint_format", "version", "format"}, config.quant_format);
  f.text({"quant_algo"}, algorithm);
  f.flag({"desc_act"}, act_order);
  f.flag({"sym"}, symmetric);
  f.flag({"zero_point"}, zero_point);
  f.count({"bits", "w_bit"}, 1, group.bits);
  f.count({"group_size", "q_group_size"}, -1, size);
  if (Status s = f.status(); !s) return s;
  if (config.method.empty() && !algorithm.empty()) config.method = "modelopt";
  config.act_order = act_order.value_or(false);
  if (config.method == "compressed-tensors") return read_compressed_groups(quant, file, config);
  if (config.method == "modelopt") {
    // Mixed models state a size per module: the tensors show it.
    if (algorithm == "NVFP4") set_group(size, group);
    group.bits = algorithm == "NVFP4" ? std::optional<i64>(4) : std::nullopt;
    if (algorithm == "NVFP4") config.groups.push_back(group);
    return {};
  }
  if (config.method != "awq" && config.method != "gptq") return {};
  group.symmetric = zero_point ? std::optional<bool>(!*zero_point) : symmetric;
  set_group(size, group);
  config.groups.push_back(group);
  return {};
}

struct MethodFamilies {
  std::string_view method;
  std::vector<std::string_view> families;
};

const std::vector<MethodFamilies>& methods() {
  static const std::vector<MethodFamilies> kMethods{{"mxfp4", {"gpt-oss", "mxfp4 per expert"}},
                                                    {"modelopt", {"modelopt", "mxfp4 per expert"}},
                                                    {"compressed-tensors", {"compressed-tensors"}},
                                                    {"awq", {"awq"}},
                                                    {"gptq", {"gptq"}},
                                                    {"fp8", {"mxfp4 per expert"}},
                                                    {"deepseek_v4_fp8", {"mxfp4 per expert"}},
                                                    {"quark", {"mxfp4 per expert"}}};
  return kMethods;
}

Status check_method(const CheckpointConfig& config, const LayerFile& layer) {
  if (config.method.empty()) return {};
  std::string known;
  for (const MethodFamilies& row : methods()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.method);
    if (row.method != config.method) continue;
    if (std::find(row.families.begin(), row.families.end(), layer.family) != row.families.end()) return {};
    return fault(config.quant_source, fmt::format("quant_method '{}', but the tensors of {} are of the family {}", config.method, layer.prefix, layer.family));
  }
  return unsupported("{}: quant_method '{}' is not known (accepted: {})", config.quant_source, config.method, known);
}

/// What a stated group has against the tensors' format; empty where it fits.
std::string group_fault(const QuantGroup& group, const LayerFile& layer) {
  const QuantFormat& format = layer.problem.format;
  const i64 bits = 4;
  if (group.bits && *group.bits != bits) return fmt::format("{} bits", *group.bits);
  if (group.is_float && *group.is_float == format.is_int4()) return *group.is_float ? "floating-point codes" : "integer codes";
  if (group.symmetric && format.is_int4() && *group.symmetric == format.has_zero_point) {
    return *group.symmetric ? "symmetric codes, but there are zero points" : "zero points, but there are none";
  }
  const bool row = format.group_size == kWholeRow;
  const Shape& shape = layer.problem.shape;
  // One group that happens to be as long as the row is the same thing.
  if (group.group_size && *group.group_size != format.group_size && !(row && shape.hidden == *group.group_size && shape.intermediate == *group.group_size)) {
    return *group.group_size == kWholeRow ? "one scale a row" : fmt::format("groups of {}", *group.group_size);
  }
  return {};
}

Status check_groups(const CheckpointConfig& config, const LayerFile& layer) {
  std::string why;
  for (const QuantGroup& group : config.groups) {
    const std::string fault_here = group_fault(group, layer);
    if (fault_here.empty()) return {};
    why += (why.empty() ? "" : "; ") + fault_here;
  }
  if (config.groups.empty()) return {};
  return fault(config.quant_source, fmt::format("states {}, but the tensors of {} hold {}", why, layer.prefix, to_string(layer.problem.format)));
}

Status check_size(const CheckpointConfig& config, const LayerFile& layer, std::string_view what, const std::optional<i64>& stated, i64 found) {
  if (!stated || *stated == found) return {};
  return fault(config.source, fmt::format("{} {}, but the tensors of {} have {}", what, *stated, layer.prefix, found));
}

Status apply_activation(const CheckpointConfig& config, const std::string& prefix, Problem& problem) {
  const bool gated = is_gated(problem.activation);
  const std::string& name = config.activation;
  if (problem.activation != Activation::swiglu_oai && !name.empty()) {
    struct Row {
      std::string_view name;
      Activation gated, ungated;
    };
    static constexpr Row kRows[] = {{"silu", Activation::silu, Activation::silu_ungated},
                                    {"swish", Activation::silu, Activation::silu_ungated},
                                    {"gelu_pytorch_tanh", Activation::geglu_tanh, Activation::geglu_tanh},
                                    {"gelu", Activation::geglu_erf, Activation::gelu_ungated},
                                    {"relu2", Activation::relu2, Activation::relu2}};
    const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == name; });
    if (row == std::end(kRows)) {
      return unsupported("{}: hidden_act '{}' (accepted: silu, swish, gelu_pytorch_tanh, gelu, relu2)", config.source, name);
    }
    const Activation activation = gated ? row->gated : row->ungated;
    if (is_gated(activation) != gated) {
      return fault(config.source, fmt::format("hidden_act '{}' does not fit {}, which has {} gate rows", name, prefix, gated ? "" : "no"));
    }
    problem.activation = activation;
    problem.params = default_params(activation);
  }
  if (!config.limit) return {};
  const auto limit = static_cast<float>(*config.limit);
  if (!std::isfinite(limit) || limit <= 0) return fault(config.source, fmt::format("swiglu_limit {}: expected a number above 0", *config.limit));
  if (problem.activation != Activation::silu && problem.activation != Activation::swiglu_oai) {
    return fault(config.source, fmt::format("swiglu_limit {}: {} has no limit", *config.limit, to_string(problem.activation)));
  }
  problem.params.has_limit = 1;
  problem.params.limit = limit;
  return {};
}

}  // namespace

Result<CheckpointConfig> parse_checkpoint_config(std::string_view text, std::string_view hf_quant_text, const std::string& folder) {
  CheckpointConfig config;
  if (!text.empty()) {
    config.source = folder + "/config.json";
    const Result<Json> json = parse_object(text, config.source);
    if (!json) return json.error();
    // Models of several modes keep the language model's sizes one level down.
    const auto nested = json->find("text_config");
    const bool is_nested = nested != json->end() && nested->is_object();
    Fields f(is_nested ? *nested : *json, config.source, is_nested ? "text_config." : "");
    f.text({"model_type"}, config.model_type);
    const bool latent = f.find({"moe_latent_size"}) != nullptr;  // experts work on another width than the model's
    if (!latent) f.count({"hidden_size"}, 1, config.hidden);
    f.count({"num_local_experts", "n_routed_experts", "num_experts"}, 1, config.experts);
    f.count({"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "top_k_experts"}, 1, config.topk);
    // Where intermediate_size is also that of dense layers, it says nothing of the experts.
    f.count({"moe_intermediate_size", "expert_ffn_hidden_size"}, 1, config.intermediate);
    if (!config.intermediate && config.model_type == "gpt_oss") f.count({"intermediate_size"}, 1, config.intermediate);
    f.text({"mlp_hidden_act", "hidden_act", "hidden_activation"}, config.activation);
    f.number({"swiglu_limit"}, config.limit);
    f.text({"expert_dtype"}, config.expert_dtype);
    if (Status s = f.status(); !s) return s.error();
    for (const Json* place : {&*json, is_nested ? &*nested : &*json}) {
      const auto quant = place->find("quantization_config");
      if (quant == place->end() || quant->is_null() || !config.quant_source.empty()) continue;
      if (!quant->is_object()) return fault(config.source, "quantization_config: expected an object");
      if (Status s = read_quantization(*quant, config.source, config); !s) return s.error();
    }
  }
  if (!hf_quant_text.empty() && config.quant_source.empty()) {
    const std::string file = folder + "/hf_quant_config.json";
    const Result<Json> json = parse_object(hf_quant_text, file);
    if (!json) return json.error();
    const auto quant = json->find("quantization");
    if (quant == json->end() || !quant->is_object()) return fault(file, "has no object 'quantization'");
    if (Status s = read_quantization(*quant, file, config); !s) return s.error();
  }
  return config;
}

ReadHints read_hints(const CheckpointConfig& config) {
  ReadHints hints;
  hints.gptq_v2 = config.method == "gptq" && config.quant_format == "gptq_v2";
  hints.gptq_symmetric = config.method == "gptq" && !config.groups.empty() && config.groups.front().symmetric.value_or(false);
  return hints;
}

Status apply_checkpoint_config(const CheckpointConfig& config, LayerFile& layer) {
  Problem& problem = layer.problem;
  if (Status s = check_method(config, layer); !s) return s;
  if (config.method == "awq" && !config.quant_format.empty() && config.quant_format != "gemm" && config.quant_format != "GEMM") {
    return unsupported("{}: AWQ version '{}' (accepted: gemm)", config.quant_source, config.quant_format);
  }
  if (config.method == "gptq" && !config.quant_format.empty() && config.quant_format != "gptq" && config.quant_format != "gptq_v2") {
    return unsupported("{}: GPTQ checkpoint_format '{}' (accepted: gptq, gptq_v2)", config.quant_source, config.quant_format);
  }
  if (!config.expert_dtype.empty() && config.expert_dtype != "fp4") {
    return fault(config.source, fmt::format("expert_dtype '{}', but the tensors of {} are 4-bit (accepted: fp4)", config.expert_dtype, layer.prefix));
  }
  if (Status s = check_groups(config, layer); !s) return s;
  const Shape& shape = problem.shape;
  if (Status s = check_size(config, layer, "hidden_size", config.hidden, shape.hidden); !s) return s;
  if (Status s = check_size(config, layer, "moe_intermediate_size", config.intermediate, shape.intermediate); !s) return s;
  if (Status s = check_size(config, layer, "number of experts", config.experts, shape.experts); !s) return s;
  if (config.topk) problem.shape.topk = *config.topk;
  return apply_activation(config, layer.prefix, problem);
}

}  // namespace w4moe
