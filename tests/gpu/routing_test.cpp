// Hostile and unusual routing on a real GPU.
#include <algorithm>
#include <climits>
#include <cstring>

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "tests/support/device_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

Problem routed(i64 hidden, i64 intermediate, i64 experts, i64 topk, i64 max_tokens) {
  Problem p = gpu_problem();
  p.shape = Shape{hidden, intermediate, experts, topk, max_tokens};
  return p;
}

float bf16_value(u16 bits) {
  const u32 wide = static_cast<u32>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

/// Runs with these ids and checks every row against the references.
std::vector<u16> check_ids(const DeviceLayer& layer, DeviceInputs& inputs, const std::vector<i32>& ids) {
  std::copy(ids.begin(), ids.end(), inputs.host.ids.begin());
  gpu_must(inputs.ids.upload(inputs.host.ids.data(), inputs.ids.bytes()));
  gpu_must(inputs.out.fill(0xff));
  const std::vector<u16> out = layer.run(inputs);
  const Problem& problem = layer.plan.problem;
  ReferenceOptions options;
  options.threads = 0;
  std::vector<u16> mirror(out.size());
  std::vector<double> exact(out.size());
  gpu_must(reference_mirror(problem, layer.host.source, inputs.host.inputs, mirror, options));
  gpu_must(reference_fp64(problem, layer.host.source, inputs.host.inputs, exact, options));
  const ContractVerdict verdict = check_contract(problem, compare_outputs(problem.dtype, out, exact, problem.shape.hidden),
                                                 compare_outputs(problem.dtype, mirror, exact, problem.shape.hidden));
  INFO(verdict.reason);
  CHECK(verdict.holds);
  return out;
}

}  // namespace

TEST_CASE("N09, N11, R1: any id, any multiplicity: foreign ids contribute nothing, duplicates count each time") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, routed(512, 256, 64, 4, 40));
  for (const i64 tokens : {1, 5, 40}) {
    DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
    const std::size_t n = inputs.host.ids.size();
    std::vector<i32> ids(n, 0);
    check_ids(layer, inputs, ids);                                   // all to expert 0, duplicates inside a token
    check_ids(layer, inputs, std::vector<i32>(n, 63));               // only the last expert
    const std::vector<u16> none = check_ids(layer, inputs, std::vector<i32>(n, -1));
    CHECK(std::all_of(none.begin(), none.end(), [](u16 v) { return v == 0; }));
    const i32 odd[] = {-1, 64, INT_MAX, INT_MIN, 3, 63, 65, -7};
    for (std::size_t i = 0; i < n; ++i) ids[i] = odd[i % 8];
    check_ids(layer, inputs, ids);
  }
}

TEST_CASE("N09: partial outputs of four ranks with mapped ids add up to the single rank's") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  // Rank r holds experts 8 r .. 8 r + 7 of 32: here by giving each rank the ids of its own experts only.
  const DeviceLayer layer(*gpu.table, engine, routed(512, 256, 32, 4, 16));
  DeviceInputs inputs(*gpu.table, layer.plan.problem, 16);
  const std::vector<i32> all(inputs.host.ids);
  const std::vector<u16> whole = check_ids(layer, inputs, all);
  std::vector<double> sum(whole.size(), 0.0);
  for (i32 rank = 0; rank < 4; ++rank) {
    std::vector<i32> mine(all);
    for (i32& id : mine) id = id / 8 == rank ? id : -1;
    const std::vector<u16> part = check_ids(layer, inputs, mine);
    for (std::size_t i = 0; i < part.size(); ++i) sum[i] += bf16_value(part[i]);
  }
  const ErrorReport report = compare_outputs(DType::bf16, whole, sum, layer.plan.problem.shape.hidden);
  CHECK(report.worst_row_rmse < 6e-3);  // five roundings to bf16 against one
}

TEST_CASE("N31: expert counts around the powers of two, and top-k up to 32") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  for (const i64 experts : {1, 2, 127, 128, 129, 384, 511, 512, 513, 1023, 1024, 1025}) {
    const i64 topk = std::min<i64>(8, experts);
    const DeviceLayer layer(*gpu.table, engine, routed(64, 32, experts, topk, 4096));
    for (const i64 tokens : {1, 257, 4096}) {
      INFO("experts " << experts << ", m " << tokens);
      DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
      check_ids(layer, inputs, inputs.host.ids);
    }
  }
  const DeviceLayer wide(*gpu.table, engine, routed(64, 32, 64, 32, 64));
  DeviceInputs inputs(*gpu.table, wide.plan.problem, 64);
  check_ids(wide, inputs, inputs.host.ids);
}

TEST_CASE("N27: every pair of id type and router weight type") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, routed(512, 256, 16, 4, 40));
  for (const i64 tokens : {1, 33}) {
    for (const IdType id_type : {IdType::i32, IdType::i64}) {
      for (const DType router : {DType::f32, DType::bf16}) {
        const DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens, {}, id_type, router);
        const std::vector<u16> out = layer.run(inputs);
        std::vector<double> exact(out.size());
        gpu_must(reference_fp64(layer.plan.problem, layer.host.source, inputs.host.inputs, exact));
        CHECK(compare_outputs(DType::bf16, out, exact, 512).worst_row_rmse < contract_relative_rmse(DType::bf16));
      }
    }
  }
}

TEST_CASE("N34, N08: every m from 1 to 300 with poisoned scratch gives each token what it gets alone") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, routed(512, 256, 16, 4, 300));
  const i64 width = layer.plan.problem.shape.hidden;
  DeviceInputs inputs(*gpu.table, layer.plan.problem, 300);
  std::vector<double> exact(static_cast<std::size_t>(300 * width));
  ReferenceOptions options;
  options.threads = 0;
  gpu_must(reference_fp64(layer.plan.problem, layer.host.source, inputs.host.inputs, exact, options));
  const std::vector<u8> nans(static_cast<std::size_t>(layer.scratch.bytes() - kControlBytes), 0xff);
  for (i64 m = 1; m <= 300; ++m) {
    gpu_must(layer.scratch.upload(nans.data(), static_cast<i64>(nans.size()), kControlBytes));
    gpu_must(inputs.out.fill(0xff));
    inputs.args.tokens = m;
    std::vector<u16> out = layer.run(inputs);
    // Rows past m are not touched.
    CHECK(std::all_of(out.begin() + m * width, out.end(), [](u16 v) { return v == 0xffff; }));
    out.resize(static_cast<std::size_t>(m * width));
    const std::vector<double> rows(exact.begin(), exact.begin() + m * width);
    const ErrorReport report = compare_outputs(DType::bf16, out, rows, width);
    INFO("m " << m);
    REQUIRE(report.kind_mismatches == 0);
    REQUIRE(report.worst_row_rmse <= contract_relative_rmse(DType::bf16));
  }
}

TEST_CASE("N15: 200 runs give the same bits") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  for (const i64 topk : {1, 2, 8}) {
    const DeviceLayer layer(*gpu.table, engine, routed(1024, 512, 8, topk, 32));
    for (const i64 tokens : {1, 4, 32}) {
      const DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
      const std::vector<u16> first = layer.run(inputs);
      for (int i = 0; i < 200; ++i) REQUIRE(layer.run(inputs) == first);
    }
  }
}

TEST_CASE("N13: rows past 2^31 and 2^32 elements equal the same tokens in a small run; the last expert past 2^31 bytes of weights") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, routed(2048, 1024, 16, 8, 270000));
  const i64 width = layer.plan.problem.shape.hidden;
  for (const i64 tokens : {140000, 270000}) {
    const DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
    const std::vector<u16> out = layer.run(inputs);
    for (const i64 first : {i64{0}, tokens / 2, tokens - 64}) {
      DeviceInputs small(*gpu.table, layer.plan.problem, 64);
      gpu_must(small.x.upload(inputs.host.x.data() + first * width, small.x.bytes()));
      gpu_must(small.ids.upload(inputs.host.ids.data() + first * 8, small.ids.bytes()));
      gpu_must(small.router.upload(inputs.host.weights.data() + first * 8, small.router.bytes()));
      const std::vector<u16> alone = layer.run(small);
      const std::vector<u16> rows(out.begin() + first * width, out.begin() + (first + 64) * width);
      std::vector<double> wanted;
      for (const u16 bits : alone) wanted.push_back(bf16_value(bits));
      CHECK(compare_outputs(DType::bf16, rows, wanted, width).worst_row_rmse <= contract_relative_rmse(DType::bf16));
    }
  }
}
