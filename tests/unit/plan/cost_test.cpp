// The cost model: its counts against exact routing statistics, its formula against the one that fitted the rates, its predictions
// against the committed measurements.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generator/manifest/presets.hpp"
#include "generator/plan/cost_model.hpp"
#include "generator/plan/costs/texts.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/plan/shapes.hpp"

namespace w4moe {
namespace {

Variant blocks_of(int rows) {
  Variant v;
  v.kind = KernelKind::fc1;
  v.hidden = 256;
  v.intermediate = 256;
  v.format = kMxfp4;
  v.tile.block_rows = rows;
  return v;
}

Problem measured(const std::string& name) {
  Problem p = *preset(name, 1, 1, 32768);
  p.activation = Activation::silu;
  p.params = default_params(p.activation);
  p.has_bias = false;
  return p;
}

std::string names_of(const Plan& plan, const Bucket& bucket) {
  std::string names;
  for (const int k : plan.launched_by(bucket)) names += (names.empty() ? "" : "+") + plan.kernels[static_cast<std::size_t>(k)].name;
  return names;
}

}  // namespace

TEST_CASE("costs: every embedded file reads, and serves its target only") {
  REQUIRE(!cost_texts().empty());
  for (const std::string_view text : cost_texts()) {
    const Result<CostModel> model = parse_costs(text);
    if (!model) FAIL(model.error().message);
    CHECK(!model->kernels.empty());
    CHECK(costs_for(named_device(model->arch)) != nullptr);
  }
  CHECK(costs_for(named_device(Arch::sm_120a)) == nullptr);
}

TEST_CASE("costs: a malformed file is refused, naming the field") {
  CHECK(parse_costs("[]").error().message.find("w4moe.costs/1") != std::string::npos);
  nlohmann::json j = nlohmann::json::parse(cost_texts()[0]);
  j["kernels"]["fc1.wgmma.mxfp4"].erase("visit_ns");
  CHECK(parse_costs(j.dump()).error().message.find("kernels/fc1.wgmma.mxfp4/visit_ns") != std::string::npos);
  j = nlohmann::json::parse(cost_texts()[0]);
  j["launches"]["combine"]["launch_us"] = -1;
  CHECK(parse_costs(j.dump()).error().message.find("launches/combine/launch_us") != std::string::npos);
  j = nlohmann::json::parse(cost_texts()[0]);
  j.erase("overlap");
  CHECK(!parse_costs(j.dump()));
}

TEST_CASE("expected routing: exact for few tokens") {
  // Three tokens, one of four experts each: an expert has 0, 1, 2, 3 routes with chances 27, 27, 9, 1 in 64.
  const Shape shape{256, 256, 4, 1, 64};
  const ExpectedRouting r = expected_routing(blocks_of(8), shape, 3);
  CHECK(r.experts == Approx(4 * 37.0 / 64));
  CHECK(r.blocks == Approx(4 * 37.0 / 64));
  CHECK(r.columns == Approx(4 * 37.0 / 64 * 8));
  // 20 routes to the only expert, in blocks of 8: even blocks of 8, 8, 4.
  const ExpectedRouting one = expected_routing(blocks_of(8), Shape{256, 256, 1, 1, 64}, 20);
  CHECK(one.blocks == 3);
  CHECK(one.columns == 24);
}

TEST_CASE("expected routing: experts touched follow E (1 - (1 - k/E)^m), and routes fill the blocks at many tokens") {
  for (const i64 tokens : {1, 2, 7, 64, 1000, 100000, 16777216}) {
    for (const Shape& shape : {Shape{256, 256, 128, 4, tokens}, Shape{256, 256, 256, 8, tokens}, Shape{256, 256, 8, 2, tokens}}) {
      INFO(tokens << " tokens, " << shape.experts << " experts");
      const ExpectedRouting r = expected_routing(blocks_of(64), shape, tokens);
      const double missed = std::pow(1 - static_cast<double>(shape.topk) / static_cast<double>(shape.experts), static_cast<double>(tokens));
      CHECK(r.experts == Approx(static_cast<double>(shape.experts) * (1 - missed)).epsilon(1e-6));
      const double routes = static_cast<double>(shape.pairs(tokens));
      CHECK(r.columns >= routes);
      if (tokens >= 100000) CHECK(r.columns <= routes * 1.05);
    }
  }
}

TEST_CASE("cost model: the formula is the one that the rates were fitted with") {
  const CostModel& model = *costs_for(named_device(Arch::sm_90a));
  std::ifstream in(std::string(W4MOE_GOLDEN_DIR) + "/cost-rows.jsonl");
  int rows = 0;
  for (std::string line; std::getline(in, line); ++rows) {
    const nlohmann::json j = nlohmann::json::parse(line);
    const auto& w = j["work"];
    KernelWork work;
    work.weight_bytes = w["weight_bytes"];
    work.reread_bytes = w["reread_bytes"];
    work.output_bytes = w["output_bytes"];
    work.unit_visits = w["unit_visits"];
    work.unit_columns = w["unit_columns"];
    work.items = w["items"];
    work.slots = w["slots"];
    work.chain = w["chain"];
    work.sms = w["sms"];
    CHECK(kernel_us(model.kernels.at(w["key"].get<std::string>()), work) == Approx(j["us"].get<double>()).epsilon(1e-6));
  }
  CHECK(rows > 10);
}

TEST_CASE("cost model: predictions of measured layers") {
  std::vector<double> errors;
  for (const char* file : {"/h200-decode.json", "/h200-prefill.json"}) {
    std::ifstream in(std::string(W4MOE_BENCHMARKS_DIR) + file);
    const nlohmann::json rows = nlohmann::json::parse(in)["rows"];
    for (const auto& row : rows) {
      const Plan plan = *make_plan(measured(row["shape"]), named_device(Arch::sm_90a));
      const i64 tokens = row["m"];
      const Bucket& bucket = plan.bucket_for(tokens);
      if (names_of(plan, bucket) != row["variant"].get<std::string>()) continue;  // measured with kernels that are no longer picked
      const std::optional<double> us = predict_us(plan, bucket, tokens);
      if (!us) continue;
      INFO(row["shape"] << " m = " << tokens << ": measured " << row["us_graph"] << " us, predicted " << *us);
      errors.push_back(std::abs(*us / row["us_graph"].get<double>() - 1));
      CHECK(errors.back() < 0.25);
    }
  }
  REQUIRE(errors.size() > 40);
  std::sort(errors.begin(), errors.end());
  CHECK(errors[errors.size() / 2] < 0.05);
  CHECK(errors[errors.size() * 9 / 10] < 0.12);
}

TEST_CASE("cost model: no prediction for what was not measured") {
  Problem p = problem_of(2880, 2880, 128, 4, 64, "int4:g32");
  Plan plan = *make_plan(p, named_device(Arch::sm_90a));
  CHECK(!predict_us(plan, plan.buckets.back(), 64));
  plan = *make_plan(seed_case(), named_device(Arch::sm_120a));
  CHECK(!predict_us(plan, plan.buckets.back(), 64));
}

}  // namespace w4moe
