// Loading, unloading, forking: what the library leaves behind.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "tests/support/device_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

std::size_t free_device_bytes(const driver::DriverTable& table) {
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  gpu_must(driver::check(table, table.ctx_synchronize(), "cuCtxSynchronize"));
  gpu_must(driver::check(table, table.mem_get_info(&free_bytes, &total), "cuMemGetInfo"));
  return free_bytes;
}

// A table that counts what run() must not call, and passes everything on.
const driver::DriverTable* real_table = nullptr;
std::atomic<int> forbidden_calls{0};

driver::DriverTable counting_table(const driver::DriverTable& real) {
  real_table = &real;
  driver::DriverTable t = real;
  t.mem_alloc = [](driver::DevicePtr* p, std::size_t bytes) { return ++forbidden_calls, real_table->mem_alloc(p, bytes); };
  t.mem_host_alloc = [](void** p, std::size_t bytes, unsigned flags) { return ++forbidden_calls, real_table->mem_host_alloc(p, bytes, flags); };
  t.library_load_data = [](driver::Library* l, const void* code, int* a, void** b, unsigned c, int* d, void** e, unsigned f) {
    return ++forbidden_calls, real_table->library_load_data(l, code, a, b, c, d, e, f);
  };
  t.library_unload = [](driver::Library l) { return ++forbidden_calls, real_table->library_unload(l); };
  t.kernel_get_function = [](driver::Function* f, driver::Kernel k) { return ++forbidden_calls, real_table->kernel_get_function(f, k); };
  t.stream_synchronize = [](driver::Stream s) { return ++forbidden_calls, real_table->stream_synchronize(s); };
  t.ctx_synchronize = [] { return ++forbidden_calls, real_table->ctx_synchronize(); };
  return t;
}

}  // namespace

TEST_CASE("S12: 500 cycles of build and unload give the device its memory back") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  std::vector<Plan> plans;
  for (const i64 hidden : {256, 512}) {
    for (const QuantFormat& format : {kMxfp4, kNvfp4}) {
      Problem problem = gpu_problem();
      problem.shape.hidden = hidden;
      problem.format = format;
      plans.push_back(gpu_must(make_plan(problem, gpu_must(engine.device()))));
    }
  }
  const auto cycle = [&](const Plan& plan) {
    gpu_must(engine.build(plan));
    gpu_must(engine.unload(plan));
  };
  for (const Plan& plan : plans) cycle(plan);  // what the driver allocates once is no leak of ours
  const std::size_t before = free_device_bytes(*gpu.table);
  for (std::size_t i = 0; i < 500; ++i) cycle(plans[i % plans.size()]);
  const std::size_t after = free_device_bytes(*gpu.table);
  INFO("free before " << before << ", after " << after);
  CHECK(static_cast<double>(after) >= 0.99 * static_cast<double>(before));
}

TEST_CASE("S12: dropping the last owner of kernels while runs are in flight is safe") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  Problem problem = gpu_problem();
  problem.shape.max_tokens = 4096;
  DeviceLayer layer(*gpu.table, engine, problem);
  const DeviceInputs inputs(*gpu.table, problem, 4096);
  const std::vector<u16> expected = layer.run(inputs);
  const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
  for (int i = 0; i < 10; ++i) {
    gpu_must(inputs.out.fill(0xff));
    for (int j = 0; j < 50; ++j) gpu_must(engine.run(*layer.binding, stream.handle(), inputs.args));
    layer.binding.reset();
    engine.unload_all();
    gpu_must(stream.synchronize());
    REQUIRE(inputs.download() == expected);
    gpu_must(engine.build(layer.plan));
    layer.binding.emplace(layer.bind(layer.scratch));
  }
}

TEST_CASE("S09: runs of every size take no device memory and call nothing that allocates, loads or waits") {
  W4MOE_NEED_GPU(gpu);
  const driver::DriverTable counting = counting_table(*gpu.table);
  EngineOptions options = gpu_engine_options();
  options.driver = &counting;
  Engine engine = gpu_must(Engine::create(options));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  std::vector<DeviceInputs> inputs;
  for (i64 tokens = 1; tokens <= 64; ++tokens) inputs.emplace_back(*gpu.table, layer.plan.problem, tokens);
  layer.run(inputs.back());
  const std::size_t before = free_device_bytes(*gpu.table);
  forbidden_calls = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (const DeviceInputs& in : inputs) gpu_must(engine.run(*layer.binding, nullptr, in.args));
  }
  CHECK(forbidden_calls == 0);
  CHECK(free_device_bytes(*gpu.table) == before);
}

TEST_CASE("R04: planning and pricing do not even load libcuda; a child of a fork picks its device and runs") {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) W4MOE_SKIP("CUDA is in use in this process already");
  {
    // Whether there is a GPU is asked in a child, so that this process stays without CUDA.
    const pid_t probe = fork();
    REQUIRE(probe >= 0);
    if (probe == 0) _exit(Gpu::open().ok() ? 0 : 1);
    int status = 0;
    REQUIRE(waitpid(probe, &status, 0) == probe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) W4MOE_SKIP("no GPU");
  }
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceSpec named = named_device(Arch::sm_90a);
  gpu_must(supports(gpu_problem(), named));
  CHECK(gpu_must(required_bytes(gpu_problem(), named)) > 0);
  CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == nullptr);

  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    const auto run = [&]() -> int {
      const Gpu gpu = Gpu::open();
      if (!gpu.ok()) return 2;
      const auto device = engine.device();  // the parent's engine, used here for the first time
      if (!device) return 3;
      const auto plan = make_plan(gpu_problem(), *device);
      if (!plan) return 4;
      if (!engine.build(*plan)) return 5;
      const DeviceLayer layer(*gpu.table, engine, gpu_problem());
      const DeviceInputs inputs(*gpu.table, layer.plan.problem, 4);
      const std::vector<u16> out = layer.run(inputs);
      for (const u16 bits : out) {
        if (bits == 0xffff) return 6;
      }
      return 0;
    };
    _exit(run());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("C18: after build, no run of any size compiles or loads anything") {
  W4MOE_NEED_GPU(gpu);
  const driver::DriverTable counting = counting_table(*gpu.table);
  EngineOptions options = gpu_engine_options();
  options.driver = &counting;
  {
    Engine warm = gpu_must(Engine::create(gpu_engine_options()));
    gpu_must(warm.build(gpu_must(make_plan(gpu_problem(), gpu_must(warm.device())))));
  }
  options.kernels.jit = JitMode::off;
  Engine engine = gpu_must(Engine::create(options));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  forbidden_calls = 0;
  for (i64 tokens = 1; tokens <= 64; ++tokens) {
    const DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
    gpu_must(engine.run(*layer.binding, nullptr, inputs.args));
  }
  CHECK(forbidden_calls == 0);
  Problem other = gpu_problem();
  other.shape.hidden = 1040;
  other.format = kNvfp4;
  const auto missing = engine.build(gpu_must(make_plan(other, gpu_must(engine.device()))));
  CHECK((!missing && missing.error().code == ErrorCode::not_prepared));
}
