#include "generator/manifest/manifest.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>

#include "generator/manifest/json_source.hpp"
#include "generator/manifest/presets.hpp"
#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

/// A fault somewhere in the document. Thrown inside this file only, so that reading a field stays one line.
struct Fault {
  ErrorCode code;
  std::string pointer;
  std::string reason;
};

template <class... Args>
[[noreturn]] void fail(const std::string& pointer, fmt::format_string<Args...> text, Args&&... args) {
  throw Fault{ErrorCode::invalid_argument, pointer, fmt::format(text, std::forward<Args>(args)...)};
}

/// The value of a Result, or its error as a fault at `pointer`.
template <class T>
T take(Result<T> result, const std::string& pointer) {
  if (!result) throw Fault{result.error().code, pointer, result.error().message};
  return std::move(*result);
}

bool is_extension(const std::string& field) { return field.rfind("x-", 0) == 0; }

/// A value in an error message: whole if short.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr std::size_t kLongest = 40;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

/// Typed fields of one JSON object.
class Fields {
 public:
  Fields(const Json& object, std::string pointer) : object_(object), pointer_(std::move(pointer)) {
    if (!object.is_object()) fail(pointer_, "must be an object, not {}", shown(object));
  }

  const std::string& pointer() const { return pointer_; }
  std::string at(std::string_view field) const { return pointer_to(pointer_, field); }
  bool has(const char* field) const { return object_.contains(field); }

  /// Every field must be one of these, or an extension.
  void allow_only(std::initializer_list<const char*> known) const {
    for (const auto& item : object_.items()) {
      const std::string& name = item.key();
      if (is_extension(name)) continue;
      const bool found = std::any_of(known.begin(), known.end(), [&](const char* k) { return name == k; });
      if (!found) fail(at(name), "unknown field (accepted: {}, and x-...)", fmt::join(known.begin(), known.end(), ", "));
    }
  }

  const Json& required(const char* field) const {
    if (!has(field)) fail(pointer_, "field {} is missing", field);
    return object_.at(field);
  }

  i64 integer(const char* field) const {
    const Json& value = required(field);
    if (!value.is_number_integer()) fail(at(field), "must be an integer, not {}", shown(value));
    if (value.is_number_unsigned() && value.get<u64>() > static_cast<u64>(std::numeric_limits<i64>::max())) {
      fail(at(field), "{} does not fit 64 bits", shown(value));
    }
    return value.get<i64>();
  }
  i64 integer_or(const char* field, i64 fallback) const { return has(field) ? integer(field) : fallback; }

  /// A rank count; what divides what is the preset's to say.
  int ranks_or_one(const char* field) const {
    const i64 value = integer_or(field, 1);
    if (value < 1 || value > kMaxRanks) fail(at(field), "{} is no number of ranks (accepted: 1..{})", value, kMaxRanks);
    return static_cast<int>(value);
  }

  float number(const char* field) const {
    const Json& value = required(field);
    if (!value.is_number()) fail(at(field), "must be a number, not {}", shown(value));
    const double wide = value.get<double>();
    if (!std::isfinite(wide) || std::fabs(wide) > std::numeric_limits<float>::max()) {
      fail(at(field), "{} is outside the range of fp32", shown(value));
    }
    return static_cast<float>(wide);
  }

  std::string text(const char* field) const {
    const Json& value = required(field);
    if (!value.is_string()) fail(at(field), "must be a string, not {}", shown(value));
    return value.get<std::string>();
  }

  bool flag_or(const char* field, bool fallback) const {
    if (!has(field)) return fallback;
    const Json& value = object_.at(field);
    if (!value.is_boolean()) fail(at(field), "must be true or false, not {}", shown(value));
    return value.get<bool>();
  }

 private:
  static constexpr i64 kMaxRanks = 65536;
  const Json& object_;
  std::string pointer_;
};

void read_params(const Fields& fields, Problem& p) {
  p.params = default_params(p.activation);
  for (const char* name : {"alpha", "beta"}) {
    if (!fields.has(name)) continue;
    if (p.activation != Activation::swiglu_oai) {
      fail(fields.at(name), "{} has no {} (only swiglu-oai has)", to_string(p.activation), name);
    }
    (std::string_view(name) == "alpha" ? p.params.alpha : p.params.beta) = fields.number(name);
  }
  if (!fields.has("limit")) return;
  if (fields.required("limit").is_null()) {  // null: no limit, also where the activation has one by default
    p.params.has_limit = 0;
    p.params.limit = 0;
    return;
  }
  p.params.limit = fields.number("limit");
  p.params.has_limit = 1;
}

/// Fields that every kind of entry may have.
void read_common(const Fields& fields, Problem& p) {
  if (fields.has("name")) p.name = fields.text("name");
  if (fields.has("format")) p.format = take(parse_format(fields.text("format")), fields.at("format"));
  if (fields.has("dtype")) p.dtype = take(parse_dtype(fields.text("dtype")), fields.at("dtype"));
  p.weight_on_input = fields.flag_or("weight_on_input", p.weight_on_input);
  p.compact_tail = fields.flag_or("compact_tail", p.compact_tail);
}

Problem read_model_problem(const Fields& fields) {
  fields.allow_only({"model", "tp", "ep", "max_tokens", "name", "format", "dtype", "weight_on_input", "compact_tail", "pins",
                     "scratch_cap_bytes"});
  const int tp = fields.ranks_or_one("tp");
  const int ep = fields.ranks_or_one("ep");
  Problem p = take(preset(fields.text("model"), tp, ep, fields.integer("max_tokens")), fields.pointer());
  read_common(fields, p);
  return p;
}

Problem read_explicit_problem(const Fields& fields) {
  fields.allow_only({"name", "hidden", "intermediate", "experts", "topk", "max_tokens", "format", "activation", "alpha", "beta", "limit",
                     "dtype", "bias", "weight_on_input", "compact_tail", "pins", "scratch_cap_bytes"});
  Problem p;
  p.shape.hidden = fields.integer("hidden");
  p.shape.intermediate = fields.integer("intermediate");
  p.shape.experts = fields.integer("experts");
  p.shape.topk = fields.integer("topk");
  p.shape.max_tokens = fields.integer("max_tokens");
  (void)fields.required("format");
  p.activation = take(parse_activation(fields.text("activation")), fields.at("activation"));
  read_params(fields, p);
  p.has_bias = fields.flag_or("bias", false);
  read_common(fields, p);
  return p;
}

PlanOptions read_options(const Fields& fields) {
  PlanOptions options;
  options.scratch_cap_bytes = fields.integer_or("scratch_cap_bytes", 0);
  if (options.scratch_cap_bytes < 0) {
    fail(fields.at("scratch_cap_bytes"), "{} must be 0 (none) or a number of bytes", options.scratch_cap_bytes);
  }
  if (!fields.has("pins")) return options;
  const Json& pins = fields.required("pins");
  if (!pins.is_array()) fail(fields.at("pins"), "must be an array of strings, not {}", shown(pins));
  for (std::size_t i = 0; i < pins.size(); ++i) {
    const std::string pointer = pointer_to(fields.at("pins"), std::to_string(i));
    if (!pins[i].is_string()) fail(pointer, "must be a string, not {}", shown(pins[i]));
    const std::string pin = pins[i].get<std::string>();
    const std::vector<std::string>& known = known_pins();
    if (std::find(known.begin(), known.end(), pin) == known.end()) {
      fail(pointer, "pin '{}' is unknown (accepted: {})", pin, fmt::join(known, ", "));
    }
    options.pins.push_back(pin);
  }
  return options;
}

ManifestEntry read_entry(const Json& object, const std::string& pointer) {
  const Fields fields(object, pointer);
  ManifestEntry entry;
  entry.where = pointer;
  entry.problem = fields.has("model") ? read_model_problem(fields) : read_explicit_problem(fields);
  entry.options = read_options(fields);
  if (Status s = validate(entry.problem); !s) throw Fault{s.error().code, pointer, s.error().message};
  return entry;
}

/// One name for two different problems would make reports ambiguous; the same entry twice is merely redundant.
void check_names(const Json& problems) {
  std::map<std::string, std::size_t> first;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (!problems[i].contains("name")) continue;
    const std::string name = problems[i]["name"].get<std::string>();
    const auto [it, is_new] = first.emplace(name, i);
    if (!is_new && problems[it->second] != problems[i]) {
      fail(pointer_to(pointer_to("/problems", std::to_string(i)), "name"), "'{}' also names the different /problems/{}", name, it->second);
    }
  }
}

Manifest read_manifest(const Json& document) {
  const Fields top(document, "");
  top.allow_only({"schema_version", "problems"});
  const i64 version = top.integer("schema_version");
  if (version != kManifestSchemaVersion) {
    fail("/schema_version", "{} is not a version that this build reads (accepted: {})", version, kManifestSchemaVersion);
  }
  const Json& problems = top.required("problems");
  if (!problems.is_array()) fail("/problems", "must be an array, not {}", shown(problems));
  if (problems.empty()) fail("/problems", "is empty: a manifest has at least one problem");
  Manifest manifest;
  manifest.entries.reserve(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    manifest.entries.push_back(read_entry(problems[i], pointer_to("/problems", std::to_string(i))));
  }
  check_names(problems);
  return manifest;
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view text, std::string_view file_name) {
  Result<Json> document = parse_json(text, file_name);
  if (!document) return document.error();
  try {
    return read_manifest(*document);
  } catch (const Fault& fault) {
    const int line = fault.pointer.empty() ? 0 : line_of(text, fault.pointer);
    return Error{fault.code, fmt::format("{}:{}: {}: {}", file_name, line == 0 ? 1 : line,
                                         fault.pointer.empty() ? "the document" : fault.pointer, fault.reason)};
  }
}

std::string manifest_entry(const Problem& p, const PlanOptions& options) {
  // Shortest decimals that read back as the same fp32, as a person would have written them.
  const auto decimal = [](float v) { return nlohmann::ordered_json(std::stod(fmt::format("{}", v))); };
  nlohmann::ordered_json j;
  if (!p.name.empty()) j["name"] = p.name;
  j["hidden"] = p.shape.hidden;
  j["intermediate"] = p.shape.intermediate;
  j["experts"] = p.shape.experts;
  j["topk"] = p.shape.topk;
  j["max_tokens"] = p.shape.max_tokens;
  j["format"] = to_string(p.format);
  j["activation"] = to_string(p.activation);
  const ActivationParams defaults = default_params(p.activation);
  if (p.params.alpha != defaults.alpha) j["alpha"] = decimal(p.params.alpha);
  if (p.params.beta != defaults.beta) j["beta"] = decimal(p.params.beta);
  if (p.params.has_limit != defaults.has_limit || p.params.limit != defaults.limit) {
    j["limit"] = p.params.has_limit != 0 ? decimal(p.params.limit) : nlohmann::ordered_json(nullptr);
  }
  j["dtype"] = to_string(p.dtype);
  if (p.has_bias) j["bias"] = true;
  if (p.weight_on_input) j["weight_on_input"] = true;
  if (p.compact_tail) j["compact_tail"] = true;
  if (!options.pins.empty()) j["pins"] = options.pins;
  if (options.scratch_cap_bytes != 0) j["scratch_cap_bytes"] = options.scratch_cap_bytes;
  return j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace w4moe
