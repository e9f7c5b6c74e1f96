// Reads measured times of kernels (docs/benchmarks/h200-kernels.csv) and of layers (h200-decode.json, h200-prefill.json), and writes
// each with the work that the planner counts for it, one JSON object a line: what fit_costs.py fits rates to.
//
//   w4moe-cost-rows h200-kernels.csv [LAYERS.json ...] > rows.jsonl
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/manifest/presets.hpp"
#include "generator/plan/cost_model.hpp"
#include "generator/plan/rules.hpp"

namespace {

using namespace w4moe;
using Json = nlohmann::ordered_json;

constexpr i64 kMostTokens = 32768;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

std::vector<i32> numbers(const std::string& text, char at) {
  std::vector<i32> all;
  for (const std::string& part : split(text, at)) all.push_back(std::stoi(part));
  return all;
}

/// The kernel that a row's family and tile name; nothing where the tile is malformed.
std::optional<Variant> variant_of(const Problem& p, bool is_fc1, const std::string& family, const std::string& tile) {
  Variant v;
  v.kind = is_fc1 ? KernelKind::fc1 : KernelKind::fc2;
  v.hidden = p.shape.hidden;
  v.intermediate = p.shape.intermediate;
  v.format = p.format;
  v.activation = Activation::silu;
  v.dtype = p.dtype;
  const std::vector<std::string> parts = split(tile, '.');
  if (family == "wgmma") {
    if (parts.size() != 5) return std::nullopt;
    v.family = Family::wgmma;
    v.wgmma = WgmmaTile{};
    const std::vector<i32> widths = numbers(parts[0], '+');
    for (std::size_t i = 0; i < static_cast<std::size_t>(kWgmmaMaxWidths); ++i) v.wgmma.widths[i] = i < widths.size() ? widths[i] : 0;
    v.wgmma.blocks_per_group = std::stoi(parts[1]);
    v.wgmma.stage_units = std::stoi(parts[2]);
    v.wgmma.stages = std::stoi(parts[3]);
    v.wgmma.steps_per_group = std::stoi(parts[4]);
    return v;
  }
  const std::vector<i32> t = numbers(tile, '.');
  if (t.size() != 7) return std::nullopt;
  v.tile = GemmTile{t[0], t[1], t[2], t[3], t[4], t[5], t[6]};
  if (family == "direct") v.kind = is_fc1 ? KernelKind::fc1_direct : KernelKind::fc2_direct;
  return v;
}

/// Whether the planner's tables hold this tile.
bool is_planned(const Variant& v) {
  if (v.is_wgmma()) return std::any_of(kWgmmaTiles.begin(), kWgmmaTiles.end(), [&](const WgmmaChoice& c) { return c.tile == v.wgmma; });
  for (const GemmTile& tile : {kDirectFc1OneStrip, kDirectFc1TwoStrips, kDirectFc1Few, kDirectFc1Many, kDirectFc1Most, kDirectFc2Two, kDirectFc2Three, kDirectFc2Four}) {
    if (tile == v.tile) return true;
  }
  return std::any_of(kPortableTiles.begin(), kPortableTiles.end(), [&](const TileChoice& c) { return c.tile == v.tile; });
}

Json work_json(const Variant& v, const Shape& shape, const DeviceSpec& device, i64 tokens, double touched) {
  const KernelWork w = kernel_work(v, shape, device, tokens, touched);
  return {{"key", cost_key(v)},           {"weight_bytes", w.weight_bytes}, {"reread_bytes", w.reread_bytes}, {"output_bytes", w.output_bytes},
          {"unit_visits", w.unit_visits}, {"unit_columns", w.unit_columns}, {"items", w.items},               {"slots", w.slots},
          {"chain", w.chain},             {"sms", w.sms}};
}

/// Counts of routing and combine.
Json launches_json(const Problem& p, i64 tokens) {
  const RouteLayout route{tokens, p.shape.topk, p.shape.experts, kRowVectorElems};
  const ScratchLayout scratch{p.shape, p.dtype, 0};
  return {{"parallel", route.is_parallel()}, {"routes", route.pairs()}, {"combine_kb", static_cast<double>(route.pairs() * scratch.route_row_bytes()) / 1e3}};
}

/// The problem as it was measured: silu, no biases.
Problem plain_of(Problem p) {
  p.activation = Activation::silu;
  p.params = default_params(p.activation);
  p.has_bias = false;
  return p;
}

int fail(const std::string& what) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fail("usage: w4moe-cost-rows KERNELS.csv [LAYERS.json ...]");
  const DeviceSpec device = named_device(Arch::sm_90a);
  std::ifstream csv(argv[1]);
  if (!csv) return fail(fmt::format("cannot read {}", argv[1]));
  bool header = true;
  for (std::string line; std::getline(csv, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (header) {  // run,shape,m,active,kernel,family,tile,us
      header = false;
      continue;
    }
    const std::vector<std::string> f = split(line, ',');
    if (f.size() != 8) return fail(fmt::format("{}: '{}' has {} fields, not 8", argv[1], line, f.size()));
    const Result<Problem> p = preset(f[1], 1, 1, kMostTokens);
    if (!p) return fail(p.error().message);
    const i64 tokens = std::stoll(f[2]);
    const double touched = std::stod(f[3]);
    Json row{{"run", f[0]}, {"shape", f[1]}, {"m", tokens}, {"kernel", f[4]}, {"family", f[5]}, {"tile", f[6]}, {"us", std::stod(f[7])}};
    if (f[4] == "fc1" || f[4] == "fc2") {
      const std::optional<Variant> v = variant_of(*p, f[4] == "fc1", f[5], f[6]);
      if (!v) return fail(fmt::format("{}: tile of '{}'", argv[1], line));
      row["planned"] = is_planned(*v);
      row["work"] = work_json(*v, p->shape, device, tokens, touched);
    } else {
      if (f[4] != "layer" || f[5].find("direct") == std::string::npos) row["launches"] = launches_json(*p, tokens);
      if (f[4] == "layer") {  // families and tiles of FC1 and FC2, '/' between them
        const std::vector<std::string> families = split(f[5], '/');
        const std::vector<std::string> tiles = split(f[6], '/');
        if (families.size() != 2 || tiles.size() != 2) return fail(fmt::format("{}: tiles of '{}'", argv[1], line));
        bool planned = true;
        std::vector<Variant> pair;
        for (std::size_t i = 0; i < 2; ++i) {
          const std::optional<Variant> v = variant_of(*p, i == 0, families[i], tiles[i]);
          if (!v) return fail(fmt::format("{}: tile of '{}'", argv[1], line));
          planned = planned && is_planned(*v);
          pair.push_back(*v);
          row[i == 0 ? "fc1" : "fc2"] = work_json(*v, p->shape, device, tokens, touched);
        }
        row["planned"] = planned;
        // Whether the rules pick it, with the family that the run measured.
        const bool portable = families[0] == "portable";
        const Result<Plan> plan = make_plan(plain_of(*p), device, PlanOptions{{portable ? "portable" : "wgmma", "no-direct"}, 0});
        if (!plan) return fail(plan.error().message);
        const Bucket& bucket = plan->bucket_for(tokens);
        const Variant& fc1 = plan->kernels[static_cast<std::size_t>(bucket.fc1)].variant;
        const Variant& fc2 = plan->kernels[static_cast<std::size_t>(bucket.fc2)].variant;
        row["rule"] = fc1.tile == pair[0].tile && fc2.tile == pair[1].tile && fc1.wgmma == pair[0].wgmma && fc2.wgmma == pair[1].wgmma;
      }
    }
    std::cout << row.dump() << "\n";
  }
  for (int i = 2; i < argc; ++i) {
    std::ifstream in(argv[i]);
    const Json file = Json::parse(in, nullptr, false);
    if (!file.is_object() || !file.contains("rows")) return fail(fmt::format("{}: no rows", argv[i]));
    for (const Json& r : file["rows"]) {
      const std::string shape = r["shape"];
      const i64 tokens = r["m"];
      const Result<Problem> p = preset(shape, 1, 1, kMostTokens);
      if (!p) return fail(p.error().message);
      const Result<Plan> plan = make_plan(plain_of(*p), device);
      if (!plan) return fail(plan.error().message);
      const Bucket& bucket = plan->bucket_for(tokens);
      std::string names;
      for (const int k : plan->launched_by(bucket)) names += (names.empty() ? "" : "+") + plan->kernels[static_cast<std::size_t>(k)].name;
      if (names != r["variant"]) continue;  // measured with a kernel that this planner no longer picks
      const double touched = r["active_experts"];
      Json row{{"run", "bench"}, {"shape", shape}, {"m", tokens}, {"kernel", "layer"}, {"family", "-"}, {"tile", names}, {"us", r["us_graph"]}};
      row["fc1"] = work_json(plan->kernels[static_cast<std::size_t>(bucket.fc1)].variant, p->shape, device, tokens, touched);
      row["fc2"] = work_json(plan->kernels[static_cast<std::size_t>(bucket.fc2)].variant, p->shape, device, tokens, touched);
      if (!bucket.direct) row["launches"] = launches_json(*p, tokens);
      std::cout << row.dump() << "\n";
    }
  }
  return 0;
}
