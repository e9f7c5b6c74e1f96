// Hostile and unusual routing on a real GPU.
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "tests/support/device_layer.hpp"
#include "tests/support/temp_dir.hpp"

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

TEST_CASE("N13: rows past 2^31 and 2^32 elements equal the same tokens in a small run") {
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

TEST_CASE("N13: experts that lie past 2^31 bytes of weights, packed on the GPU") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  constexpr i64 kExperts = 513, kHidden = 4096, kFeatures = 1024;
  Problem problem = routed(kHidden, kFeatures, kExperts, 1, 64);
  // 3.4 GB of codes and scales, each word from a counter: the made-up layers of the other tests would take minutes.
  std::vector<std::vector<u64>> storage;
  const auto tensor = [&](i64 rows, i64 columns, bool is_scale) {
    std::vector<u64> words(static_cast<std::size_t>(kExperts * rows * columns / 8));
    u64 state = rows + columns;
    for (u64& word : words) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      const u64 bits = state ^ (state >> 29);
      word = is_scale ? 0x7474747474747474ull + (bits & 0x0303030303030303ull) : bits;  // 2^-11 .. 2^-8
    }
    storage.push_back(std::move(words));
    return SourceTensor{storage.back().data(), SourceType::u8, {kExperts, rows, columns}, {}};
  };
  SourceWeights source;
  source.gate_up_order = GateUpOrder::gate_first;
  source.code_order = CodeOrder::low_nibble_first;
  source.scale_layout = ScaleLayout::row_major;
  source.zero_order = ZeroOrder::none;
  source.global_convention = GlobalConvention::none;
  source.gate_up = SourceMatrix{{tensor(2 * kFeatures, kHidden / 2, false)}, {tensor(2 * kFeatures, kHidden / 32, true)}, {}, {}};
  source.down = SourceMatrix{{tensor(kHidden, kFeatures / 2, false)}, {tensor(kHidden, kFeatures / 32, true)}, {}, {}};

  const Plan plan = gpu_must(make_plan(problem, gpu_must(engine.device())));
  REQUIRE(plan.prepared_weight_bytes() > i64{1} << 31);
  gpu_must(engine.build(plan));
  const driver::DeviceBuffer weights = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, plan.prepared_weight_bytes()));
  const driver::DeviceBuffer workspace = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, gpu_must(prepare_workspace_bytes(problem, source))));
  const PreparedWeights prepared = gpu_must(engine.prepare(plan, source, weights.data(), weights.bytes(), workspace.data(), workspace.bytes(), nullptr));
  const driver::DeviceBuffer scratch = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, plan.required_bytes()));
  const Binding binding = gpu_must(engine.bind(plan, prepared, scratch.data(), scratch.bytes()));
  gpu_must(engine.init_scratch(binding, nullptr));
  for (const i64 tokens : {1, 64}) {
    DeviceInputs inputs(*gpu.table, problem, tokens);
    for (const i32 expert : {0, 340, 341, 512}) {
      std::fill(inputs.host.ids.begin(), inputs.host.ids.end(), expert);
      gpu_must(inputs.ids.upload(inputs.host.ids.data(), inputs.ids.bytes()));
      gpu_must(engine.run(binding, nullptr, inputs.args));
      gpu_must(driver::check(*gpu.table, gpu.table->ctx_synchronize(), "cuCtxSynchronize"));
      const std::vector<u16> out = inputs.download();
      ReferenceOptions options;
      options.threads = 0;
      options.tokens = {0, tokens - 1};
      std::vector<double> exact(static_cast<std::size_t>(2 * kHidden));
      gpu_must(reference_fp64(problem, source, inputs.host.inputs, exact, options));
      std::vector<u16> rows(out.begin(), out.begin() + kHidden);
      rows.insert(rows.end(), out.end() - kHidden, out.end());
      INFO("expert " << expert << ", m " << tokens);
      CHECK(compare_outputs(DType::bf16, rows, exact, kHidden).worst_row_rmse <= contract_relative_rmse(DType::bf16));
    }
  }
}

// The test runs itself twice more, each time in a process of its own, and compares what they wrote.
TEST_CASE("N15: other processes give the same bits") {
  W4MOE_NEED_GPU(gpu);
  const auto outputs = [&] {
    Engine engine = gpu_must(Engine::create(gpu_engine_options()));
    std::vector<u16> all;
    for (const i64 topk : {1, 2, 8}) {
      const DeviceLayer layer(*gpu.table, engine, routed(1024, 512, 8, topk, 32));
      for (const i64 tokens : {1, 4, 32}) {
        const std::vector<u16> out = layer.run(DeviceInputs(*gpu.table, layer.plan.problem, tokens));
        all.insert(all.end(), out.begin(), out.end());
      }
    }
    return all;
  };
  const std::vector<u16> mine = outputs();
  if (const char* file = std::getenv("W4MOE_N15_OUTPUT")) {
    std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(mine.data()), static_cast<std::streamsize>(mine.size() * 2));
    return;
  }
  const TempDir dir;
  for (const char* name : {"a", "b"}) {
    const std::string file = (dir / name).string();
    const std::string command = "W4MOE_N15_OUTPUT='" + file + "' '" + std::filesystem::read_symlink("/proc/self/exe").string() + "' 'N15: other processes give the same bits' >/dev/null";
    REQUIRE(std::system(command.c_str()) == 0);
    std::vector<u16> theirs(mine.size());
    std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(theirs.data()), static_cast<std::streamsize>(theirs.size() * 2));
    CHECK((theirs == mine));
  }
}
