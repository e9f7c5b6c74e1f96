// The text and JSON forms of a plan, against golden files (W4MOE_UPDATE_GOLDEN=1 rewrites them).
#include <nlohmann/json.hpp>
#include <string>

#include "generator/plan/explain.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/golden.hpp"
#include "tests/unit/plan/shapes.hpp"

namespace w4moe {
namespace {

void check_golden(const std::string& name, const Plan& plan) {
  const std::string base = std::string(W4MOE_GOLDEN_DIR) + "/" + name;
  const std::string text = explain(plan);
  CHECK(text == test::golden(base + ".txt", text));
  const std::string json = plan_json(plan) + "\n";
  CHECK(json == test::golden(base + ".json", json));
}

Plan plan_of(Problem p, const std::string& name, Arch arch, const PlanOptions& options = {}) {
  p.name = name;
  Result<Plan> plan = make_plan(p, named_device(arch), options);
  if (!plan) FAIL(plan.error().message);
  return *plan;
}

}  // namespace

TEST_CASE("explain: golden text and JSON") {
  check_golden("seed-case.sm_90a", plan_of(seed_case(), "seed-case", Arch::sm_90a));
  Problem gpt_oss = problem_of(2880, 2880, 128, 4, 8192, "mxfp4", Activation::swiglu_oai);
  gpt_oss.has_bias = true;
  check_golden("gpt-oss-120b.sm_120a", plan_of(gpt_oss, "gpt-oss-120b", Arch::sm_120a));
  Problem tail = problem_of(4096, 176, 16, 8, 300, "int4:row:zp", Activation::relu2);
  tail.dtype = DType::f16;
  check_golden("tails.sm_89", plan_of(tail, "tails", Arch::sm_89, {{"n16"}, 4 << 20}));
}

TEST_CASE("explain: the JSON has the fields that scripts rely on, and its numbers agree with the plan") {
  const Plan plan = plan_of(seed_case(1024), "seed-case", Arch::sm_90a);
  const nlohmann::json j = nlohmann::json::parse(plan_json(plan));
  for (const char* field : {"schema", "scratch_bytes", "regions", "kernels", "buckets", "prepared_weight_bytes", "layout_id"}) {
    INFO(field);
    CHECK(j.contains(field));
  }
  CHECK(j["schema"] == "w4moe.plan/1");
  CHECK(j["scratch_bytes"].get<i64>() == plan.required_bytes());
  CHECK(j["prepared_weight_bytes"].get<i64>() == plan.prepared_weight_bytes());
  CHECK(std::stoull(j["layout_id"].get<std::string>(), nullptr, 16) == plan.layout());
  CHECK(j["buckets"].size() == plan.buckets.size());
  CHECK(j["buckets"].back()["last_tokens"] == 1024);
  for (const auto& bucket : j["buckets"]) CHECK(bucket["kernels"].size() == (bucket["direct"].get<bool>() ? 2 : bucket["self_routed"].get<bool>() ? 3 : bucket["parallel_route"].get<bool>() ? 5 : 4));
  CHECK(plan_json(plan, -1).find('\n') == std::string::npos);
}

TEST_CASE("explain: every bucket lists its candidates with predictions and marks the one that serves") {
  for (const std::vector<std::string>& pins : {std::vector<std::string>{}, {"portable"}, {"w48"}}) {
    const Plan plan = plan_of(seed_case(8192), "seed-case", Arch::sm_90a, {pins, 0});
    const nlohmann::json j = nlohmann::json::parse(plan_json(plan));
    for (const auto& bucket : j["buckets"]) {
      INFO(bucket["first_tokens"]);
      int chosen = 0;
      for (const auto& c : bucket["candidates"]) {
        chosen += c["chosen"].get<bool>() ? 1 : 0;
        CHECK(c["predicted_us"][0].get<double>() > 0);
        CHECK(c["predicted_us"][1].get<double>() > 0);
        if (c["chosen"].get<bool>()) CHECK(c["predicted_us"] == bucket["predicted_us"]);
        if (c["pin"].is_string()) CHECK(make_plan(seed_case(8192), named_device(Arch::sm_90a), {{c["pin"].get<std::string>()}, 0}).ok());
      }
      CHECK(chosen == 1);
      CHECK(bucket["candidates"].size() >= 9);
    }
  }
  // No measurements, no predictions.
  const nlohmann::json j = nlohmann::json::parse(plan_json(plan_of(seed_case(64), "seed-case", Arch::sm_120a)));
  CHECK(j["buckets"][0]["candidates"].empty());
  CHECK(j["buckets"][0]["predicted_us"][0].is_null());
}

TEST_CASE("explain: a name with odd bytes still gives valid JSON") {
  const Plan plan = plan_of(seed_case(), std::string("a\"b\\\n\xff\x01", 7), Arch::sm_90a);
  CHECK(nlohmann::json::accept(plan_json(plan)));
}

}  // namespace w4moe
