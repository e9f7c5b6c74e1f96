#include "generator/plan/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "generator/plan/costs/texts.hpp"
#include "generator/plan/tile_choice.hpp"
#include "generator/problem/errors.hpp"
#include "generator/render/variant_header.hpp"

namespace w4moe {
namespace {

using Json = nlohmann::json;

constexpr const char* kSchema = "w4moe.costs/1";

/// How sharply the longest of bytes, arithmetic and chain stands out: (a^p + b^p + c^p)^(1/p).
constexpr double kSharpness = 4;

struct Field {
  const char* name;
  double KernelCosts::*value;
};
constexpr Field kFields[] = {
    {"launch_us", &KernelCosts::launch_us},   {"bytes_per_us", &KernelCosts::bytes_per_us}, {"reread_share", &KernelCosts::reread_share},
    {"visit_ns", &KernelCosts::visit_ns},     {"column_ns", &KernelCosts::column_ns},       {"item_ns", &KernelCosts::item_ns},
    {"output_ns_per_kb", &KernelCosts::output_ns_per_kb}, {"step_ns", &KernelCosts::step_ns}, {"tail_share", &KernelCosts::tail_share},
};

Status read_number(const Json& from, const std::string& where, const char* name, double& to) {
  const auto found = from.find(name);
  if (found == from.end() || !found->is_number()) return invalid_argument("costs: {}/{} is missing or no number", where, name);
  to = found->get<double>();
  if (!std::isfinite(to) || to < 0) return invalid_argument("costs: {}/{} is {} (accepted: 0 and more)", where, name, to);
  return {};
}

TileClass class_of(const Variant& v) {
  Problem p;
  p.format = v.format;
  p.dtype = v.dtype;
  return tile_class(p);
}

double linear_us(const CostModel& model, std::string_view launch, double units) {
  const auto found = model.launches.find(launch);
  return found == model.launches.end() ? 0.0 : found->second.launch_us + found->second.ns_per_unit * units / 1e3;
}

}  // namespace

Result<CostModel> parse_costs(std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  if (!j.is_object() || j.value("schema", "") != kSchema) return invalid_argument("costs: not an object of schema {}", kSchema);
  CostModel model;
  model.device = j.value("device", "");
  model.source = j.value("source", "");
  Result<Arch> arch = parse_arch(j.value("arch", ""));
  if (!arch) return arch.error();
  model.arch = *arch;
  double sms = 0;
  if (Status s = read_number(j, "", "sms", sms); !s) return s.error();
  model.sms = static_cast<int>(sms);
  if (!j.contains("kernels") || !j["kernels"].is_object() || !j.contains("launches") || !j["launches"].is_object()) {
    return invalid_argument("costs: /kernels and /launches must be objects");
  }
  for (const auto& [key, costs] : j["kernels"].items()) {
    KernelCosts& to = model.kernels[key];
    for (const Field& field : kFields) {
      if (Status s = read_number(costs, "kernels/" + key, field.name, to.*field.value); !s) return s.error();
    }
    if (to.bytes_per_us <= 0) return invalid_argument("costs: kernels/{}/bytes_per_us is 0 (accepted: above 0)", key);
  }
  for (const auto& [key, costs] : j["launches"].items()) {
    LinearCosts& to = model.launches[key];
    if (Status s = read_number(costs, "launches/" + key, "launch_us", to.launch_us); !s) return s.error();
    if (Status s = read_number(costs, "launches/" + key, "ns_per_unit", to.ns_per_unit); !s) return s.error();
  }
  if (!j.contains("overlap")) return invalid_argument("costs: /overlap is missing");
  if (Status s = read_number(j["overlap"], "overlap", "direct_us", model.direct_overlap_us); !s) return s.error();
  if (Status s = read_number(j["overlap"], "overlap", "routed_share", model.routed_share); !s) return s.error();
  return model;
}

const CostModel* costs_for(const DeviceSpec& device) {
  static const std::vector<CostModel> models = [] {
    std::vector<CostModel> all;
    for (const std::string_view text : cost_texts()) {
      if (Result<CostModel> model = parse_costs(text)) all.push_back(std::move(*model));  // a test reads each of them
    }
    return all;
  }();
  const auto found = std::find_if(models.begin(), models.end(), [&](const CostModel& m) { return m.arch == device.arch; });
  return found == models.end() ? nullptr : &*found;
}

std::string cost_key(const Variant& v) {
  static constexpr std::string_view kClasses[] = {"mxfp4", "nvfp4", "other"};
  return fmt::format("{}.{}.{}", kind_name(v.kind), family_name(v.family), kClasses[static_cast<int>(class_of(v))]);
}

double kernel_us(const KernelCosts& c, const KernelWork& w) {
  const double bytes = w.weight_bytes + c.reread_share * w.reread_bytes + w.output_bytes;
  const double memory_us = bytes / c.bytes_per_us;
  const double arithmetic_us = (c.visit_ns * w.unit_visits + c.column_ns * w.unit_columns + c.item_ns * w.items) / (w.sms * 1e3) +
                               c.output_ns_per_kb * w.output_bytes / 1e6;
  const double chain_us = std::max(1.0, w.items / w.slots) * w.chain * c.step_ns / 1e3;
  const double longest = std::max({memory_us, arithmetic_us, chain_us});
  if (longest <= 0) return c.launch_us;
  double sum = 0;  // of shares of the longest, so that no power overflows
  for (const double part : {memory_us, arithmetic_us, chain_us}) sum += std::pow(part / longest, kSharpness);
  return c.launch_us + longest * std::pow(sum, 1 / kSharpness) * (1 + c.tail_share * std::min(1.0, w.slots / w.items));
}

std::optional<double> kernel_us(const CostModel& model, const Variant& v, const KernelWork& work) {
  const auto found = model.kernels.find(cost_key(v));
  if (found == model.kernels.end()) return std::nullopt;
  return kernel_us(found->second, work);
}

std::optional<double> layer_us(const CostModel& model, const Variant& fc1, const Variant& fc2, const Shape& shape, const DeviceSpec& device,
                               i64 tokens, bool direct, bool self_routed) {
  const std::optional<double> first = kernel_us(model, fc1, kernel_work(fc1, shape, device, tokens));
  const std::optional<double> second = kernel_us(model, fc2, kernel_work(fc2, shape, device, tokens));
  if (!first || !second) return std::nullopt;
  const double gemms_us = *first + *second;
  if (direct) return gemms_us - model.direct_overlap_us;
  const RouteLayout route{tokens, shape.topk, shape.experts, fc1.block_rows()};
  const ScratchLayout scratch{shape, fc2.dtype, 0};
  const double route_us = self_routed ? 0 : linear_us(model, route.is_parallel() ? "route_parallel" : "route", static_cast<double>(route.pairs()));
  const double combine_us = linear_us(model, "combine", static_cast<double>(route.pairs() * scratch.route_row_bytes()) / 1e3);
  return model.routed_share * (gemms_us + route_us + combine_us);
}

std::optional<double> predict_us(const Plan& plan, const Bucket& bucket, i64 tokens) {
  const CostModel* model = costs_for(plan.device);
  if (model == nullptr || bucket.fc1 < 0 || bucket.fc2 < 0) return std::nullopt;
  return layer_us(*model, plan.kernels[static_cast<std::size_t>(bucket.fc1)].variant, plan.kernels[static_cast<std::size_t>(bucket.fc2)].variant,
                  plan.problem.shape, plan.device, tokens, bucket.direct, bucket.self_routed);
}

}  // namespace w4moe
