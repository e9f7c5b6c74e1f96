#include "generator/manifest/presets.hpp"

#include <algorithm>
#include <array>

#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

constexpr QuantFormat kInt4Group32{CodeType::u4, ScaleType::bf16, 32, false, false};
constexpr QuantFormat kInt4Group128{CodeType::u4, ScaleType::f16, 128, false, false};

struct PresetRow {
  std::string_view name;
  std::string_view config;
  std::string_view checkpoint_format;
  i64 hidden;
  i64 intermediate;
  i64 experts;
  i64 topk;
  QuantFormat format;
  Activation activation;
  float limit;      ///< 0: the activation's default
  bool has_bias;
};

constexpr auto kSilu = Activation::silu;
constexpr auto kOai = Activation::swiglu_oai;

/// Widths from the models' published config.json: hidden_size, moe_intermediate_size (or intermediate_size), the number of routed
/// experts, experts per token, hidden_act, swiglu_limit. Shared experts are not part of the layer.
constexpr std::array<PresetRow, 15> kPresets{{
    {"deepseek-v3", "deepseek-ai/DeepSeek-V3", "fp8", 7168, 2048, 256, 8, kNvfp4, kSilu, 0, false},
    {"dsv3-tp8", "deepseek-ai/DeepSeek-V3, one of eight tensor-parallel ranks", "fp8", 7168, 256, 256, 8, kNvfp4, kSilu, 0, false},
    {"dsv4-flash", "deepseek-ai/DeepSeek-V4-Flash", "mxfp4", 4096, 2048, 256, 6, kMxfp4, kSilu, 10, false},
    {"glm-4.5", "zai-org/GLM-4.5", "bf16", 5120, 1536, 160, 8, kNvfp4, kSilu, 0, false},
    {"glm-4.5-air", "zai-org/GLM-4.5-Air", "bf16", 4096, 1408, 128, 8, kNvfp4, kSilu, 0, false},
    {"gpt-oss-120b", "openai/gpt-oss-120b", "mxfp4", 2880, 2880, 128, 4, kMxfp4, kOai, 0, true},
    {"gpt-oss-20b", "openai/gpt-oss-20b", "mxfp4", 2880, 2880, 32, 4, kMxfp4, kOai, 0, true},
    {"kimi-k2", "moonshotai/Kimi-K2-Thinking", "int4:g32", 7168, 2048, 384, 8, kInt4Group32, kSilu, 0, false},
    {"minimax-m2", "MiniMaxAI/MiniMax-M2", "fp8", 3072, 1536, 256, 8, kNvfp4, kSilu, 0, false},
    {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", "bf16", 4096, 14336, 8, 2, kInt4Group128, kSilu, 0, false},
    {"mixtral-like", "the widths of mistralai/Mixtral-8x7B-v0.1 in mxfp4, a benchmark shape", "bf16", 4096, 14336, 8, 2, kMxfp4,
     kSilu, 0, false},
    {"nemotron-3-nano", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "bf16", 2688, 1856, 128, 6, kNvfp4, Activation::relu2, 0, false},
    {"qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", "bf16", 4096, 1536, 128, 8, kNvfp4, kSilu, 0, false},
    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "bf16", 2048, 768, 128, 8, kNvfp4, kSilu, 0, false},
    {"seed-case", "the documented case of the planner that this project re-creates, a benchmark shape", "nvfp4", 6144, 512, 160, 8,
     kNvfp4, kSilu, 0, false},
}};

Problem whole_problem(const PresetRow& row) {
  Problem p;
  p.name = row.name;
  p.shape = Shape{row.hidden, row.intermediate, row.experts, row.topk, 0};
  p.format = row.format;
  p.activation = row.activation;
  p.params = default_params(row.activation);
  if (row.limit > 0) {
    p.params.limit = row.limit;
    p.params.has_limit = 1;
  }
  p.has_bias = row.has_bias;
  return p;
}

std::string divisors(i64 n) {
  std::string list;
  for (i64 d = 1; d <= n && d <= 64; ++d) {
    if (n % d == 0) list += fmt::format("{}{}", list.empty() ? "" : ", ", d);
  }
  return n > 64 ? list + ", ..." : list;
}

Status check_ranks(std::string_view what, int ranks, std::string_view of, i64 size, std::string_view model) {
  if (ranks >= 1 && size % ranks == 0) return {};
  return invalid_argument("{} {} does not divide the {} {} of {} (accepted: {})", what, ranks, size, of, model, divisors(size));
}

}  // namespace

std::vector<PresetInfo> presets() {
  std::vector<PresetInfo> all;
  for (const PresetRow& row : kPresets) {
    all.push_back({std::string(row.name), std::string(row.config), std::string(row.checkpoint_format), whole_problem(row)});
  }
  return all;
}

Result<Problem> preset(std::string_view name, int tp, int ep, i64 max_tokens) {
  const auto row = std::find_if(kPresets.begin(), kPresets.end(), [name](const PresetRow& r) { return r.name == name; });
  if (row == kPresets.end()) {
    std::vector<std::string_view> known;
    for (const PresetRow& r : kPresets) known.push_back(r.name);
    return invalid_argument("model '{}' is unknown (accepted: {})", name, fmt::join(known, ", "));
  }
  if (Status s = check_ranks("tp", tp, "intermediate features", row->intermediate, name); !s) return s.error();
  if (Status s = check_ranks("ep", ep, "experts", row->experts, name); !s) return s.error();
  Problem p = whole_problem(*row);
  p.shape.intermediate /= tp;
  p.shape.experts /= ep;
  p.shape.max_tokens = max_tokens;
  if (tp > 1) p.name += fmt::format(".tp{}", tp);
  if (ep > 1) p.name += fmt::format(".ep{}", ep);
  return p;
}

}  // namespace w4moe
