#include "generator/plan/explain.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "generator/plan/candidates.hpp"
#include "generator/plan/cost_model.hpp"
#include "generator/render/variant_header.hpp"

namespace w4moe {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "w4moe.plan/1";

/// The shortest decimal that reads back as this float: 1.702, not 1.70200002.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

/// Dynamic shared memory of a launch, where it depends on the problem too.
i64 launch_shared_bytes(const Plan& plan, const Variant& v) { return kernel_shared_bytes(v, plan.problem.shape); }

std::string activation_text(const Problem& p) {
  std::string text(to_string(p.activation));
  if (p.activation == Activation::swiglu_oai) text += fmt::format(" alpha {} beta {}", p.params.alpha, p.params.beta);
  if (p.params.has_limit != 0) text += fmt::format(" limit {}", p.params.limit);
  return text;
}

std::vector<std::string> bucket_kernels(const Plan& plan, const Bucket& b) {
  std::vector<std::string> names;
  for (const int index : plan.launched_by(b)) names.push_back(plan.kernels[index].name);
  return names;
}

Json problem_json(const Problem& p) {
  Json j;
  j["name"] = p.name;
  j["hidden"] = p.shape.hidden;
  j["intermediate"] = p.shape.intermediate;
  j["experts"] = p.shape.experts;
  j["topk"] = p.shape.topk;
  j["max_tokens"] = p.shape.max_tokens;
  j["format"] = to_string(p.format);
  j["activation"] = to_string(p.activation);
  if (p.activation == Activation::swiglu_oai) {
    j["alpha"] = shortest(p.params.alpha);
    j["beta"] = shortest(p.params.beta);
  }
  j["limit"] = p.params.has_limit != 0 ? Json(shortest(p.params.limit)) : Json(nullptr);
  j["dtype"] = to_string(p.dtype);
  j["bias"] = p.has_bias;
  j["weight_on_input"] = p.weight_on_input;
  j["compact_tail"] = p.compact_tail;
  return j;
}

Json kernel_json(const Plan& plan, const PlannedKernel& kernel) {
  const Variant& v = kernel.variant;
  Json j;
  j["name"] = kernel.name;
  j["kind"] = kind_name(v.kind);
  j["arch"] = to_string(v.arch);
  j["threads"] = v.threads();
  j["smem_bytes"] = launch_shared_bytes(plan, v);
  if (v.is_gemm()) {
    j["family"] = family_name(v.family);
    j["block_rows"] = v.block_rows();
    j["tile_rows"] = v.tile_rows();
    j["row_tiles"] = v.row_tiles();
    if (v.is_wgmma()) {
      const auto* widths = v.wgmma.widths;
      j["widths"] = std::vector<int>(widths, widths + v.wgmma.width_count());
      j["stage_k"] = v.wgmma.stage_k();
      j["stages"] = v.wgmma.stages;
    } else {
      j["stage_k"] = v.tile.stage_k();
      j["stages"] = v.tile.stages;
      j["units_per_warp"] = v.tile.units_per_warp;
    }
    j["min_ctas_per_sm"] = v.min_ctas_per_sm();
  }
  j["reason"] = kernel.reason;
  return j;
}

/// A prediction in JSON: tenths of a microsecond, or null.
Json us_json(std::optional<double> us) { return us ? Json(std::round(*us * 10) / 10) : Json(nullptr); }

std::string us_text(std::optional<double> us) { return us ? fmt::format("{:.1f}", *us) : std::string("-"); }

/// Predicted times of everything that could serve a bucket; the one that does is marked.
std::string candidates_text(const Bucket& bucket, const std::vector<Candidate>& candidates) {
  if (candidates.empty()) return {};
  const bool one = bucket.first_tokens == bucket.last_tokens;
  std::string text = fmt::format("      candidates, predicted us at {}{}:\n", bucket.first_tokens, one ? "" : fmt::format(" .. {}", bucket.last_tokens));
  for (const Candidate& c : candidates) {
    const std::string times = one ? us_text(c.first_us) : fmt::format("{:>9} .. {}", us_text(c.first_us), us_text(c.last_us));
    text += fmt::format("      {} {:<7} {:<24} {}\n", c.chosen ? '*' : ' ', c.name, times, c.pin.empty() ? "no pin" : "pin " + c.pin);
  }
  return text;
}

Json bucket_json(const Plan& plan, const Bucket& b, const std::vector<Candidate>& candidates) {
  Json j{{"first_tokens", b.first_tokens},
         {"last_tokens", b.last_tokens},
         {"block_rows", b.block_rows},
         {"direct", b.direct},
         {"self_routed", b.self_routed},
         {"parallel_route", b.parallel_route},
         {"kernels", bucket_kernels(plan, b)},
         {"reason", b.reason},
         {"predicted_us", Json::array({us_json(predict_us(plan, b, b.first_tokens)), us_json(predict_us(plan, b, b.last_tokens))})},
         {"candidates", Json::array()}};
  for (const Candidate& c : candidates) {
    j["candidates"].push_back({{"name", c.name},
                               {"pin", c.pin.empty() ? Json(nullptr) : Json(c.pin)},
                               {"predicted_us", Json::array({us_json(c.first_us), us_json(c.last_us)})},
                               {"chosen", c.chosen}});
  }
  return j;
}

}  // namespace

std::string plan_json(const Plan& plan, int indent) {
  Json j;
  j["schema"] = kSchema;
  j["problem"] = problem_json(plan.problem);
  j["device"] = {{"name", plan.device.name},
                 {"arch", to_string(plan.device.arch)},
                 {"sms", plan.device.sms},
                 {"shared_optin_bytes", plan.device.shared_optin_bytes},
                 {"shared_per_sm_bytes", plan.device.shared_per_sm_bytes}};
  j["pins"] = plan.options.pins;
  j["scratch_cap_bytes"] = plan.options.scratch_cap_bytes;
  j["scratch_bytes"] = plan.required_bytes();
  j["chunk_tokens"] = plan.chunk_tokens;
  j["regions"] = Json::array();
  for (const PlannedRegion& r : plan.regions) {
    j["regions"].push_back(
        {{"name", r.name}, {"offset_bytes", r.offset_bytes}, {"bytes", r.bytes}, {"lifetime", r.lifetime}});
  }
  j["kernels"] = Json::array();
  for (const PlannedKernel& k : plan.kernels) j["kernels"].push_back(kernel_json(plan, k));
  j["buckets"] = Json::array();
  const std::vector<std::vector<Candidate>> candidates = candidates_of(plan);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) j["buckets"].push_back(bucket_json(plan, plan.buckets[i], candidates[i]));
  j["prepared_weight_bytes"] = plan.prepared_weight_bytes();
  j["layout_id"] = fmt::format("{:016x}", plan.layout());
  j["notes"] = plan.notes;
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string explain(const Plan& plan) {
  const Problem& p = plan.problem;
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "{}: hidden {}, intermediate {}, experts {}, top-k {}, max tokens {}\n", p.name.empty() ? "problem" : p.name,
                 p.shape.hidden, p.shape.intermediate, p.shape.experts, p.shape.topk, p.shape.max_tokens);
  fmt::format_to(out, "  {} weights, {} activations, {}{}{}{}\n", to_string(p.format), to_string(p.dtype), activation_text(p),
                 p.has_bias ? ", biases" : "", p.weight_on_input ? ", router weight on the input" : "",
                 p.compact_tail ? ", compact tail" : "");
  fmt::format_to(out, "device {}: {}, {} SMs, {} bytes shared memory per CTA\n", plan.device.name, to_string(plan.device.arch),
                 plan.device.sms, plan.device.shared_optin_bytes);
  for (const std::string& pin : plan.options.pins) fmt::format_to(out, "pin {}\n", pin);

  fmt::format_to(out, "\nbuckets (tokens: kernels)\n");
  const std::vector<std::vector<Candidate>> candidates = candidates_of(plan);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& b = plan.buckets[i];
    fmt::format_to(out, "  {}..{}: {}\n      {}\n{}", b.first_tokens, b.last_tokens, fmt::join(bucket_kernels(plan, b), ", "), b.reason,
                   candidates_text(b, candidates[i]));
  }
  if (const CostModel* model = costs_for(plan.device)) {
    fmt::format_to(out, "predictions: from measurements on one {}, random routing; the rules pick, not the predictions\n", model->device);
  }
  if (const std::vector<InvarianceCost> costs = invariance_costs(plan); !costs.empty()) {
    fmt::format_to(out, "batch-invariant: predicted us, and without the pin:");
    for (const InvarianceCost& c : costs) fmt::format_to(out, " {} tokens {:.1f}, {:.1f};", c.tokens, c.us, c.free_us);
    text.back() = '\n';
  }
  fmt::format_to(out, "\nkernels\n");
  for (const PlannedKernel& k : plan.kernels) {
    fmt::format_to(out, "  {:<8} {} threads, {} bytes shared\n      {}\n", k.name, k.variant.threads(),
                   launch_shared_bytes(plan, k.variant), k.reason);
  }
  fmt::format_to(out, "\nscratch {} bytes\n", plan.required_bytes());
  for (const PlannedRegion& r : plan.regions) {
    fmt::format_to(out, "  {:<13} {:>14} at {:>14}  {}\n", r.name, r.bytes, r.offset_bytes, r.lifetime);
  }
  fmt::format_to(out, "\nprepared weights {} bytes, layout {:016x}\n", plan.prepared_weight_bytes(), plan.layout());
  for (const std::string& note : plan.notes) fmt::format_to(out, "note: {}\n", note);
  return text;
}

}  // namespace w4moe
