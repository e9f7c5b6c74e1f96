// Layers of public models on a real GPU, through the public API, against fp64: eagerly and as replayed graphs.
#include <algorithm>
#include <cstdio>

#include "generator/manifest/presets.hpp"
#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "tests/support/device_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

struct ModelCase {
  const char* preset;
  int tp;
  i64 max_tokens;
};

// Kimi-K2 brings INT4 in groups of 32, Nemotron an ungated squared ReLU with odd widths, gpt-oss biases and a limit.
constexpr ModelCase kModels[] = {
    {"gpt-oss-120b", 1, 8192}, {"dsv4-flash", 1, 1024},  {"qwen3-30b-a3b", 1, 8192},   {"seed-case", 1, 1024},      {"dsv3-tp8", 1, 1024},
    {"kimi-k2", 8, 1024},      {"mixtral-8x7b", 1, 1024}, {"nemotron-3-nano", 1, 1024}, {"nemotron-3-nano", 2, 1024},
};

Problem problem_of(const ModelCase& c) {
  const w4moe::Result<Problem> p = preset(c.preset, c.tp, 1, c.max_tokens);
  INFO((p ? std::string() : p.error().message));
  REQUIRE(p.ok());
  return *p;
}

/// Checks the first, a middle and the last token against fp64; prints the figures.
void check_rows(const DeviceLayer& layer, const DeviceInputs& inputs, const std::vector<u16>& out, const char* how) {
  const Problem& problem = layer.plan.problem;
  const i64 tokens = inputs.args.tokens;
  ReferenceOptions options;
  options.threads = 0;
  for (const i64 t : {i64{0}, tokens / 2, tokens - 1}) {
    if (options.tokens.empty() || options.tokens.back() < t) options.tokens.push_back(t);
  }
  const std::size_t width = static_cast<std::size_t>(problem.shape.hidden);
  std::vector<u16> rows;
  for (const i64 t : options.tokens) rows.insert(rows.end(), out.begin() + t * problem.shape.hidden, out.begin() + (t + 1) * problem.shape.hidden);
  std::vector<double> exact(options.tokens.size() * width);
  gpu_must(reference_fp64(problem, layer.host.source, inputs.host.inputs, exact, options));
  const ErrorReport report = compare_outputs(problem.dtype, rows, exact, problem.shape.hidden);
  const Bucket& bucket = layer.plan.bucket_for(tokens);
  std::printf("%-20s m=%-5lld %-7s %s+%s  worst row rmse %.3e  max abs %.3e\n", problem.name.c_str(), static_cast<long long>(tokens), how,
              layer.plan.kernels[static_cast<std::size_t>(bucket.fc1)].name.c_str(),
              layer.plan.kernels[static_cast<std::size_t>(bucket.fc2)].name.c_str(), report.worst_row_rmse, report.max_abs);
  std::fflush(stdout);
  CHECK(report.kind_mismatches == 0);
  CHECK(report.worst_row_rmse <= contract_relative_rmse(problem.dtype));
}

}  // namespace

TEST_CASE("gpu: layers of public models keep the numerics contract, eagerly and as replayed graphs with changing inputs") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  for (const ModelCase& c : kModels) {
    const DeviceLayer layer(*gpu.table, engine, problem_of(c));
    const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
    std::vector<i64> counts{1, 3, 8, 33, 130, 1024};
    if (c.max_tokens > 1024) counts.push_back(c.max_tokens);
    for (const i64 tokens : counts) {
      DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
      const std::vector<u16> eager = layer.run(inputs, stream.handle());
      check_rows(layer, inputs, eager, "eager");
      const auto graph = gpu_must(driver::OwnedGraph::capture(*gpu.table, stream.handle(), [&] { return engine.run(*layer.binding, stream.handle(), inputs.args); }));
      // Other tokens, other experts, other weights under the same graph.
      SyntheticOptions other;
      other.seed = 77;
      const DeviceInputs changed(*gpu.table, layer.plan.problem, tokens, other);
      const std::vector<u16> expected = layer.run(changed, stream.handle());
      gpu_must(inputs.x.upload(changed.host.inputs.x, inputs.x.bytes()));
      gpu_must(inputs.ids.upload(changed.host.inputs.ids, inputs.ids.bytes()));
      gpu_must(inputs.router.upload(changed.host.inputs.router_weights, inputs.router.bytes()));
      gpu_must(inputs.out.fill(0xff));
      gpu_must(graph.launch(stream.handle()));
      gpu_must(stream.synchronize());
      CHECK(inputs.download() == expected);
      if (tokens == 8) check_rows(layer, changed, expected, "replay");
    }
    CHECK(gpu_must(engine.status(*layer.binding)).ok());
    gpu_must(engine.unload(layer.plan));
  }
}
