// Names of activations, formats and element types, both ways, and the activations' default parameters.
#include <array>
#include <string>
#include <string_view>

#include "generator/problem/errors.hpp"
#include "w4moe/problem.hpp"

namespace w4moe {
namespace {

struct ActivationName {
  Activation value;
  std::string_view name;
};

constexpr std::array<ActivationName, kActivationCount> kActivations{{
    {Activation::silu, "silu"},
    {Activation::swiglu_oai, "swiglu-oai"},
    {Activation::geglu_tanh, "geglu-tanh"},
    {Activation::geglu_erf, "geglu-erf"},
    {Activation::situ, "situ"},
    {Activation::relu2, "relu2"},
    {Activation::silu_ungated, "silu-ungated"},
    {Activation::gelu_ungated, "gelu-ungated"},
}};

constexpr std::string_view kKnownFormats =
    "mxfp4, mxfp4:wide, nvfp4, int4:g32, int4:g64, int4:g128, int4:row; int4 also with :zp (zero points) and :f16 (fp16 scales)";

std::string known_activations() {
  std::string list;
  for (const ActivationName& a : kActivations) {
    if (!list.empty()) list += ", ";
    list += a.name;
  }
  return list;
}

/// Cuts the text up to the next ':' off the front.
std::string_view next_part(std::string_view& rest) {
  const std::size_t colon = rest.find(':');
  const std::string_view part = rest.substr(0, colon);
  rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  return part;
}

/// Options after "int4:", for example "g128:zp:f16".
Result<QuantFormat> parse_int4(std::string_view text, std::string_view options) {
  QuantFormat format{CodeType::u4, ScaleType::bf16, kWholeRow, false, false};
  const std::string_view group = next_part(options);
  if (group == "g32") {
    format.group_size = 32;
  } else if (group == "g64") {
    format.group_size = 64;
  } else if (group == "g128") {
    format.group_size = 128;
  } else if (group != "row") {
    return unsupported("format '{}': INT4 group '{}' is not served (accepted: g32, g64, g128, row)", text, group);
  }
  bool has_f16 = false;
  while (!options.empty()) {
    const std::string_view option = next_part(options);
    bool& seen = option == "zp" ? format.has_zero_point : has_f16;
    if ((option != "zp" && option != "f16") || seen) {
      return invalid_argument("format '{}': option '{}' is unknown or repeated (accepted: zp, f16, each once)", text, option);
    }
    seen = true;
  }
  if (has_f16) format.scale = ScaleType::f16;
  return format;
}

}  // namespace

ActivationParams default_params(Activation activation) {
  ActivationParams params;
  if (activation == Activation::swiglu_oai) {
    params.alpha = 1.702f;
    params.beta = 1.0f;
    params.limit = 7.0f;
    params.has_limit = 1;
  }
  return params;
}

std::string_view to_string(Activation activation) {
  for (const ActivationName& a : kActivations) {
    if (a.value == activation) return a.name;
  }
  return "unknown";
}

Result<Activation> parse_activation(std::string_view text) {
  for (const ActivationName& a : kActivations) {
    if (a.name == text) return a.value;
  }
  return invalid_argument("activation '{}' is unknown (accepted: {})", text, known_activations());
}

std::string to_string(const QuantFormat& format) {
  if (format.is_nvfp4()) return "nvfp4";
  if (format.is_mxfp4()) return format.wide_exponent ? "mxfp4:wide" : "mxfp4";
  std::string text = format.group_size == kWholeRow ? "int4:row" : fmt::format("int4:g{}", format.group_size);
  if (format.has_zero_point) text += ":zp";
  if (format.scale == ScaleType::f16) text += ":f16";
  return text;
}

Result<QuantFormat> parse_format(std::string_view text) {
  if (text == "mxfp4") return kMxfp4;
  if (text == "mxfp4:wide") return kMxfp4Wide;
  if (text == "nvfp4") return kNvfp4;
  constexpr std::string_view kInt4 = "int4:";
  if (text.substr(0, kInt4.size()) == kInt4 && text.back() != ':') return parse_int4(text, text.substr(kInt4.size()));
  return invalid_argument("format '{}' is unknown (accepted: {})", text, kKnownFormats);
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::f32: return "f32";
  }
  return "unknown";
}

Result<DType> parse_dtype(std::string_view text) {
  if (text == "bf16") return DType::bf16;
  if (text == "f16") return DType::f16;
  if (text == "f32") return DType::f32;
  return invalid_argument("dtype '{}' is unknown (accepted: bf16, f16; f32 for router weights and biases)", text);
}

}  // namespace w4moe
