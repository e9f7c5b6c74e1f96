// The wgmma family on a real GPU, each of its tiles pinned: part-filled units, strips, tiles and widths, with exact data bit for
// bit, with random data within the numerics contract, and the same bits whatever the scratch held and however often it runs.
#include <cstdio>

#include "generator/plan/rules.hpp"
#include "tests/support/layer_checks.hpp"
#include "tests/support/layers.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

struct TailShape {
  i64 hidden;
  i64 intermediate;
};

/// Widths of seed-system.md's tail matrix that fill a tile's 256 rows; two a tile, so that all tiles together meet them all.
constexpr TailShape kShapes[] = {{256, 256}, {2880, 352}, {1600, 464}, {2816, 480}, {288, 496},
                                 {320, 512}, {256, 704},  {416, 928},  {2880, 1440}, {512, 1504}};

void check_layer(const Gpu& gpu, Engine& engine, const Problem& problem, std::string_view pin, bool exact) {
  PlanOptions options;
  options.pins = {std::string(pin)};
  SyntheticOptions synthetic;
  synthetic.data = exact ? SyntheticData::small_integers : SyntheticData::random;
  const DeviceLayer layer(*gpu.table, engine, problem, options, synthetic);
  for (const i64 tokens : {1, 3, 9, 33, 100, 150, 290}) {
    INFO(problem.name << " " << pin << ", H " << problem.shape.hidden << ", I " << problem.shape.intermediate << ", m " << tokens);
    const DeviceInputs inputs(*gpu.table, problem, tokens, synthetic);
    check_outputs(layer, inputs, run_under_fillings(layer, inputs), exact);
  }
  gpu_must(engine.unload(layer.plan));
}

void check_format(const QuantFormat& format, Activation activation, bool exact, bool bias = false) {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  if (gpu_must(engine.device()).arch != Arch::sm_90a) W4MOE_SKIP("the wgmma family needs sm_90a");
  int count = 0;
  std::size_t next = 0;
  for (const WgmmaChoice& choice : kWgmmaTiles) {
    for (int i = 0; i < (exact ? 2 : 1); ++i) {
      while (!format.divides(kShapes[next % std::size(kShapes)].intermediate)) ++next;
      const TailShape& s = kShapes[next++ % std::size(kShapes)];
      Problem problem = small_problem(s.hidden, s.intermediate, 3, format, activation);
      problem.shape.max_tokens = 290;
      problem.has_bias = bias;
      problem.name = to_string(format);
      check_layer(gpu, engine, problem, choice.pin, exact);
      ++count;
    }
  }
  std::printf("%s %s: %d layers\n", to_string(format).c_str(), std::string(to_string(activation)).c_str(), count);
}

}  // namespace

TEST_CASE("wgmma tails: MXFP4, relu2, bit for bit") { check_format(kMxfp4, Activation::relu2, true); }
TEST_CASE("wgmma tails: NVFP4, relu2, bit for bit") { check_format(kNvfp4, Activation::relu2, true); }
TEST_CASE("wgmma tails: MXFP4, swiglu_oai with biases") { check_format(kMxfp4, Activation::swiglu_oai, false, true); }
TEST_CASE("wgmma tails: NVFP4, silu") { check_format(kNvfp4, Activation::silu, false); }

// What compute-sanitizer's tools run: every tile once, with several of its widths.
TEST_CASE("S18, T3: each tile of the wgmma family", "[sanitize]") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  if (gpu_must(engine.device()).arch != Arch::sm_90a) W4MOE_SKIP("the wgmma family needs sm_90a");
  for (const QuantFormat& format : {kMxfp4, kNvfp4}) {
    for (const WgmmaChoice& choice : kWgmmaTiles) {
      Problem problem = small_problem(256, 160, 3, format, Activation::silu);
      problem.shape.max_tokens = 150;
      PlanOptions options;
      options.pins = {std::string(choice.pin)};
      const DeviceLayer layer(*gpu.table, engine, problem, options);
      const DeviceInputs inputs(*gpu.table, problem, 150);
      std::vector<double> fp64(inputs.download().size());
      gpu_must(reference_fp64(problem, layer.host.source, inputs.host.inputs, fp64));
      CHECK(compare_outputs(problem.dtype, layer.run(inputs), fp64, problem.shape.hidden).worst_row_rmse <= contract_relative_rmse(problem.dtype));
    }
  }
}
