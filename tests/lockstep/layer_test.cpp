// Whole layers of the portable family on the lock-step device: the kernels that a GPU runs, compiled unchanged.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "tests/lockstep/layer.hpp"
#include "tests/lockstep/support.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

/// Runs a layer and returns its worst row error; every report fails the test.
double error_of(const LayerCase& c, LayerRun& run, std::vector<double>& expected) {
  LockstepDevice device(test_options());
  const Layer layer = make_layer(c);
  run = run_layer(device, layer);
  if (!run.error.empty()) FAIL(run.error);
  expected = reference(layer);
  double largest = 0;
  for (const double v : expected) largest = std::max(largest, std::fabs(v));
  REQUIRE(largest > 0);  // a comparison of zeros would prove nothing
  return worst_row_error(layer, run.out, expected);
}

void check_exact(const LayerCase& c) {
  LayerRun run;
  std::vector<double> expected;
  error_of(c, run, expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (run.out[i] == expected[i]) continue;
    const std::size_t hidden = static_cast<std::size_t>(c.hidden);
    FAIL("token " << i / hidden << " column " << i % hidden << ": " << run.out[i] << " instead of " << expected[i]);
  }
}

/// Few values round the other way, where fp32 sums differ from the reference's in the last place.
void check_close(const LayerCase& c) {
  LayerRun run;
  std::vector<double> expected;
  const double error = error_of(c, run, expected);
  CAPTURE(run.milliseconds);
  CHECK(error < (c.dtype == DType::bf16 ? 1e-3 : 1e-4));
}

}  // namespace

TEST_CASE("Integers through relu2 come out bit for bit") {
  LayerCase c;
  c.activation = Activation::relu2;
  c.integers = true;
  check_exact(c);
}

TEST_CASE("Random layers agree with the reference in every format") {
  LayerCase c;
  c.hidden = GENERATE(256, 320);
  c.intermediate = 224;
  c.dtype = GENERATE(DType::bf16, DType::f16);
  SECTION("mxfp4") {}
  SECTION("mxfp4 with full exponents") { c.format = kMxfp4Wide; }
  SECTION("nvfp4") { c.format = kNvfp4; }
  SECTION("int4 groups of 32") { c.format = QuantFormat{CodeType::u4, ScaleType::bf16, 32, false, false}; }
  SECTION("int4 with zero points") { c.format = QuantFormat{CodeType::u4, ScaleType::f16, 32, true, false}; }
  SECTION("int4 groups of 64 with zero points") {
    c.format = QuantFormat{CodeType::u4, ScaleType::bf16, 64, true, false};
    c.intermediate = 192;
  }
  SECTION("int4 rows") { c.format = QuantFormat{CodeType::u4, ScaleType::bf16, kWholeRow, false, false}; }
  check_close(c);
}
