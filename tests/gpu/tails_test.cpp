// The tail matrix on a real GPU: every width that leaves part-filled units, tiles and groups, with data whose sums are exact, so
// that the kernels and the mirroring reference must agree bit for bit, whatever the scratch held before.
#include <cstdio>

#include "tests/support/layer_checks.hpp"
#include "tests/support/layers.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

struct TailShape {
  i64 hidden;
  i64 intermediate;
};

std::vector<TailShape> shapes_for(const QuantFormat& format) {
  std::vector<TailShape> shapes;
  for (const i64 i : {16, 32, 80, 128, 144, 176, 224, 352, 464, 480, 496, 512, 704, 928, 1440, 1504}) {
    if (format.divides(i)) shapes.push_back({128, i});
  }
  for (const i64 h : {256, 1600, 2816, 2880}) {
    if (format.divides(h)) shapes.push_back({h, format.divides(176) ? 176 : 352});
  }
  return shapes;
}

/// Runs one shape at every m under three fillings of the payload; the bits must not change and must be the reference's.
void check_shape(const Gpu& gpu, Engine& engine, const Problem& problem, bool exact) {
  SyntheticOptions synthetic;
  synthetic.data = exact ? SyntheticData::small_integers : SyntheticData::random;
  const DeviceLayer layer(*gpu.table, engine, problem, {}, synthetic);
  for (const i64 tokens : {1, 2, 3, 7, 8, 9, 24, 33}) {
    INFO(problem.name << ", H " << problem.shape.hidden << ", I " << problem.shape.intermediate << ", m " << tokens);
    const DeviceInputs inputs(*gpu.table, problem, tokens, synthetic);
    const std::vector<u16> first = run_under_fillings(layer, inputs);
    check_outputs(layer, inputs, first, exact);
    if (tokens == 9) {  // 16 replays over scratch full of NaNs
      const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
      const auto graph = gpu_must(driver::OwnedGraph::capture(*gpu.table, stream.handle(), [&] { return engine.run(*layer.binding, stream.handle(), inputs.args); }));
      const std::vector<u8> nans(static_cast<std::size_t>(layer.scratch.bytes() - kControlBytes), 0xff);
      for (int i = 0; i < 16; ++i) {
        gpu_must(layer.scratch.upload(nans.data(), static_cast<i64>(nans.size()), kControlBytes));
        gpu_must(graph.launch(stream.handle()));
        gpu_must(stream.synchronize());
        REQUIRE(inputs.download() == first);
      }
    }
  }
  gpu_must(engine.unload(layer.plan));
}

void check_format(const QuantFormat& format, Activation activation, bool exact, DType dtype = DType::bf16) {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  int count = 0;
  for (const TailShape& s : shapes_for(format)) {
    Problem problem = small_problem(s.hidden, s.intermediate, 8, format, activation);
    problem.dtype = dtype;
    problem.name = to_string(format);
    check_shape(gpu, engine, problem, exact);
    ++count;
  }
  std::printf("%s %s %s: %d shapes\n", to_string(format).c_str(), std::string(to_string(activation)).c_str(), std::string(to_string(dtype)).c_str(), count);
}

}  // namespace

TEST_CASE("tails: MXFP4, relu2, bit for bit") { check_format(kMxfp4, Activation::relu2, true); }
TEST_CASE("tails: MXFP4, silu") { check_format(kMxfp4, Activation::silu, false); }
TEST_CASE("tails: NVFP4, relu2, bit for bit") { check_format(kNvfp4, Activation::relu2, true); }
TEST_CASE("tails: NVFP4, silu") { check_format(kNvfp4, Activation::silu, false); }
TEST_CASE("tails: MXFP4 wide, relu2, bit for bit") { check_format(kMxfp4Wide, Activation::relu2, true); }
TEST_CASE("tails: INT4 in groups of 32 with zero points, relu2, bit for bit") { check_format(int4_format(32, true), Activation::relu2, true); }
TEST_CASE("tails: INT4 with one group a row, silu") { check_format(int4_format(kWholeRow), Activation::silu, false); }
TEST_CASE("tails: MXFP4 in fp16, relu2, bit for bit") { check_format(kMxfp4, Activation::relu2, true, DType::f16); }
TEST_CASE("tails: NVFP4 in fp16, silu") { check_format(kNvfp4, Activation::silu, false, DType::f16); }

TEST_CASE("tails: the compact K tail") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  for (const auto& [activation, intermediate] : {std::pair{Activation::silu, i64{312}}, {Activation::relu2, 112}, {Activation::silu, 352}, {Activation::relu2, 192}}) {
    Problem problem = small_problem(128, intermediate, 4, kMxfp4, activation);
    problem.compact_tail = true;
    check_shape(gpu, engine, problem, activation == Activation::relu2);
  }
}
