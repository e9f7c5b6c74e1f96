// Continuous crossovers: with nested routing (the tokens of m are the first m of m + 1) a run of m tokens could be padded to m + 1, so
// no m may take longer than m + 1 does. By the cost model here, on the CPU; `tools/bench/scan_crossovers.py` measures it on a GPU.
#include <string>

#include "generator/manifest/presets.hpp"
#include "generator/plan/cost_model.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/plan/shapes.hpp"

namespace w4moe {
namespace {

constexpr i64 kMostTokens = 8192;
/// What the model cannot tell apart: layers are predicted within 3 % in the median.
constexpr double kNoise = 0.02;
/// From the portable to the wgmma family, whose costs come from different runs, the model is less sure. Where that end lies (two
/// routes per expert) was measured.
constexpr double kFamilyNoise = 0.09;

bool is_wgmma(const Plan& plan, const Bucket& b) { return plan.kernels[static_cast<std::size_t>(b.fc1)].variant.is_wgmma(); }

}  // namespace

TEST_CASE("crossovers: no preset has an m, 1 to 8192, that is predicted to take longer than m + 1") {
  int walked = 0;
  for (const PresetInfo& info : presets()) {
    Problem p = info.problem;
    p.shape.max_tokens = kMostTokens + 1;
    const Result<Plan> plan = make_plan(p, named_device(Arch::sm_90a));
    if (!plan) FAIL(info.name << ": " << plan.error().message);
    std::optional<double> before = predict_us(*plan, plan->bucket_for(1), 1);
    if (!before) continue;  // a class of formats without measured costs
    ++walked;
    for (i64 m = 1; m <= kMostTokens; ++m) {
      const Bucket& bucket = plan->bucket_for(m);
      const Bucket& next = plan->bucket_for(m + 1);
      const std::optional<double> after = predict_us(*plan, next, m + 1);
      REQUIRE(after.has_value());
      const double noise = is_wgmma(*plan, bucket) == is_wgmma(*plan, next) ? kNoise : kFamilyNoise;
      if (*after < *before * (1 - noise)) {
        FAIL_CHECK(info.name << ": " << m << " tokens " << *before << " us, " << m + 1 << " tokens " << *after << " us");
      }
      before = after;
    }
  }
  CHECK(walked >= 12);
}

TEST_CASE("crossovers: the test sees a ladder that is cut in the wrong place") {
  Problem p = *preset("gpt-oss-120b", 1, 1, kMostTokens);
  const Plan late = *make_plan(p, named_device(Arch::sm_90a), {{"w48"}, 0});  // as if w48 went on to 44 routes per expert
  const Plan next = *make_plan(p, named_device(Arch::sm_90a), {{"w96"}, 0});
  const double before = *predict_us(late, late.bucket_for(1408), 1408);
  const double after = *predict_us(next, next.bucket_for(1409), 1409);
  CHECK(after < before * (1 - kNoise));
}

}  // namespace w4moe
