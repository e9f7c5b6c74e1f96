// The pin batch-invariant: kernels of one order of sums only, at every m, whatever max_tokens and the scratch cap are.
#include <set>
#include <string>

#include "generator/manifest/presets.hpp"
#include "generator/plan/candidates.hpp"
#include "generator/plan/explain.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/plan/shapes.hpp"

namespace w4moe {
namespace {

const std::string kPin = kBatchInvariantPin;

/// What the order of a row's sums depends on: the family, and how K is shared.
std::set<std::string> orders_of(const Plan& plan) {
  std::set<std::string> orders;
  for (const PlannedKernel& k : plan.kernels) {
    const Variant& v = k.variant;
    if (!v.is_gemm()) continue;
    orders.insert(v.is_wgmma() ? std::string("wgmma") : "portable, K shared by " + std::to_string(v.tile.warps_k) + (v.is_direct() ? ", direct" : ""));
  }
  for (const Bucket& b : plan.buckets) {
    if (b.direct) orders.insert("direct");
  }
  return orders;
}

}  // namespace

TEST_CASE("M5: a batch-invariant plan has kernels of one order of sums, the same whatever max_tokens is") {
  for (const PresetInfo& info : presets()) {
    for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
      std::set<std::string> first;
      for (const i64 max_tokens : {1, 2, 64, 8192}) {
        INFO(info.name << " " << to_string(arch) << " " << max_tokens);
        Problem p = info.problem;
        p.shape.max_tokens = max_tokens;
        const Result<Plan> plan = make_plan(p, named_device(arch), {{kPin}, 0});
        if (!plan) FAIL(plan.error().message);
        CHECK(orders_of(*plan).size() == 1);
        if (first.empty()) first = orders_of(*plan);
        CHECK(orders_of(*plan) == first);
        CHECK(is_batch_invariant(*plan));
        CHECK(plan->required_bytes() > 0);
      }
    }
  }
}

TEST_CASE("M5: without the pin a plan mixes orders, and other pins go together with it") {
  Problem p = problem_of(2880, 2880, 128, 4, 8192, "mxfp4");
  const DeviceSpec hopper = named_device(Arch::sm_90a);
  CHECK(orders_of(*make_plan(p, hopper)).size() > 1);
  CHECK(orders_of(*make_plan(p, hopper, {{kPin}, 0})) == std::set<std::string>{"wgmma"});
  CHECK(orders_of(*make_plan(p, hopper, {{kPin, "portable"}, 0})) == std::set<std::string>{"portable, K shared by 1"});
  CHECK(orders_of(*make_plan(p, hopper, {{kPin, "n8"}, 0})) == std::set<std::string>{"portable, K shared by 1"});
  CHECK(orders_of(*make_plan(p, hopper, {{kPin, "w48"}, 0})) == std::set<std::string>{"wgmma"});
  const Plan capped = *make_plan(p, hopper, {{kPin}, 16 << 20});
  CHECK(capped.chunk_tokens < 8192);
  CHECK(orders_of(capped) == std::set<std::string>{"wgmma"});
}

TEST_CASE("M5: the cost of batch invariance is stated") {
  const Plan plan = *make_plan(seed_case(8192), named_device(Arch::sm_90a), {{kPin}, 0});
  const std::vector<InvarianceCost> costs = invariance_costs(plan);
  REQUIRE(costs.size() == 8);
  CHECK(costs.front().us > costs.front().free_us);   // one token: the direct kernels are left out
  CHECK(costs.back().us == costs.back().free_us);    // many tokens: the same kernels
  CHECK(explain(plan).find("batch-invariant: predicted us, and without the pin: 1 tokens ") != std::string::npos);
  CHECK(plan.notes[0].find("batch-invariant: ") == 0);
  CHECK(invariance_costs(*make_plan(seed_case(), named_device(Arch::sm_90a))).empty());
}

}  // namespace w4moe
