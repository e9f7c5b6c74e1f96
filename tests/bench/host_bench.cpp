// Host-side costs, in processor time of one thread: planning each preset, loading its kernels from a warm cache into a driver that does nothing, and
// run() up to the launch call. Prints one JSON document.
//
//   w4moe_host_bench [--quick] [CACHE_FOLDER]
//
// With a folder that `w4moe build --model NAME --max-tokens 4096 --arch sm_90a` has filled for every preset, kernels are loaded from there.
#include <time.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/manifest/presets.hpp"
#include "runtime/driver/device_memory.hpp"
#include "tests/fake_driver/fake_compiler.hpp"
#include "tests/fake_driver/fake_driver.hpp"
#include "w4moe/engine.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

using Json = nlohmann::ordered_json;

constexpr i64 kBenchTokens = 4096;

/// Processor time of this thread: what other users of the machine do does not count.
double now_us() {
  struct timespec time {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// Median of so many timings of `body`, each over `inner` calls; microseconds of processor time a call.
template <class Body>
double median_us(int timings, int inner, Body body) {
  std::vector<double> times;
  for (int i = 0; i < timings; ++i) {
    const double start = now_us();
    for (int j = 0; j < inner; ++j) body();
    times.push_back((now_us() - start) / inner);
  }
  std::nth_element(times.begin(), times.begin() + timings / 2, times.end());
  return times[static_cast<std::size_t>(timings) / 2];
}

template <class T>
T must(w4moe::Result<T> result, const char* what) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}: {}\n", what, result.error().message);
  std::exit(1);
}
void must(const Status& status, const char* what) {
  if (status) return;
  fmt::print(stderr, "{}: {}\n", what, status.error().message);
  std::exit(1);
}

// The calls of run(), without the fake driver's records: what is left is our own work.
driver::Context the_context = nullptr;
driver::Code quiet_launch(const driver::LaunchConfig*, driver::Function, void**, void**) { return driver::kSuccess; }
driver::Code quiet_stream_context(driver::Stream, driver::Context* context) {
  *context = the_context;
  return driver::kSuccess;
}
driver::Code quiet_current(driver::Context* context) {
  *context = the_context;
  return driver::kSuccess;
}

Json measure(FakeDriver& fake, const Problem& problem, const std::string& cache, bool quick) {
  const DeviceSpec device = named_device(Arch::sm_90a);
  const Plan plan = must(make_plan(problem, device), "make_plan");
  Json row = {{"model", problem.name}, {"kernels", plan.kernels.size()}};
  row["plan_us"] = median_us(quick ? 3 : 51, 1, [&] { (void)make_plan(problem, device); });

  const auto compiler = std::make_shared<FakeCompiler>();
  compiler->add(plan);
  EngineOptions options;
  options.kernels.readonly_dirs = std::vector<std::string>{};
  options.kernels.jit = cache.empty() ? JitMode::on : JitMode::off;
  options.kernels.cache = cache.empty() ? CacheUse::off : CacheUse::readonly;
  options.kernels.cache_dir = cache;
  options.kernels.jobs = 1;
  options.driver = &fake.table();
  options.compiler = compiler;
  if (!cache.empty()) {
    // A new engine each time, as in a process that starts: nothing is in memory.
    row["warm_load_us_per_kernel"] = median_us(quick ? 1 : 11, 1, [&] {
                                       Engine engine = must(Engine::create(options), "Engine::create");
                                       (void)must(engine.build(plan), "build from the cache");
                                     }) / static_cast<double>(plan.kernels.size());
  }
  Engine engine = must(Engine::create(options), "Engine::create");
  (void)must(engine.build(plan), "build");
  const auto buffer = [&](i64 bytes) { return must(driver::DeviceBuffer::allocate(fake.table(), bytes), "allocate"); };
  const driver::DeviceBuffer weights = buffer(plan.prepared_weight_bytes()), scratch = buffer(plan.required_bytes());
  const i64 rows = kBenchTokens;
  const driver::DeviceBuffer x = buffer(rows * problem.shape.hidden * 2), out = buffer(rows * problem.shape.hidden * 2), ids = buffer(rows * problem.shape.topk * 8),
                             router = buffer(rows * problem.shape.topk * 4);
  const WeightHeader header = make_weight_header(plan.weights);
  must(weights.upload(&header, sizeof(header)), "upload");
  const PreparedWeights prepared = must(engine.adopt(weights.data(), weights.bytes()), "adopt");
  const Binding binding = must(engine.bind(plan, prepared, scratch.data(), scratch.bytes()), "bind");
  const driver::Stream stream = fake.make_stream();
  RunArgs args;
  args.x = x.data();
  args.ids = ids.data();
  args.router_weights = router.data();
  args.out = out.data();
  const driver::DriverTable recording = fake.table();
  fake.table().launch_kernel_ex = quiet_launch;
  fake.table().stream_get_ctx = quiet_stream_context;
  fake.table().ctx_get_current = quiet_current;
  for (const i64 tokens : {i64{1}, i64{64}, kBenchTokens}) {
    args.tokens = tokens;
    row["run_us"][std::to_string(tokens)] = median_us(quick ? 3 : 101, quick ? 10 : 1000, [&] { must(engine.run(binding, stream, args), "run"); });
  }
  fake.table() = recording;
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  std::string cache;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else {
      cache = argv[i];
    }
  }
  FakeDriver fake;
  the_context = fake.make_context();
  Json document = {{"schema", "w4moe.host_bench/1"}, {"max_tokens", kBenchTokens}, {"rows", Json::array()}};
  const std::vector<PresetInfo> all = presets();
  for (std::size_t i = 0; i < (quick ? std::min<std::size_t>(2, all.size()) : all.size()); ++i) {
    const Problem problem = must(preset(all[i].name, 1, 1, kBenchTokens), "preset");
    document["rows"].push_back(measure(fake, problem, cache, quick));
  }
  fmt::print("{}\n", document.dump(2));
}
