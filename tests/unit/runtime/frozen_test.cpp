// Nothing compiles where nothing may: JIT off, freeze, preload, and captures. The compiler's and the driver's counters are the oracle.
#include "cache/disk_store.hpp"
#include "runtime/build/kernel_builder.hpp"
#include "tests/support/env_guard.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Plan other_plan() {
  Problem other = small_problem();
  other.shape.hidden = 512;
  return plan_of(other);
}

/// A cache on disk that holds the small plan, as a build machine leaves it.
struct Shipped {
  Shipped() {
    FakeWorld world;
    world.compiler->add(small_plan());
    EngineOptions options = world.options();
    options.kernels.cache = CacheUse::on;
    options.kernels.cache_dir = (dir / "kernels").string();
    Engine engine = must(Engine::create(options));
    must(engine.build(small_plan()));
  }
  /// An engine that may read the shipped cache; its compiler knows every kernel and counts.
  Engine engine(FakeWorld& world, JitMode jit) const {
    world.compiler->add(small_plan());
    world.compiler->add(other_plan());
    EngineOptions options = world.options();
    options.kernels.jit = jit;
    options.kernels.cache = CacheUse::readonly;
    options.kernels.cache_dir = (dir / "none").string();
    options.kernels.readonly_dirs = std::vector<std::string>{(dir / "kernels").string()};
    return must(Engine::create(options));
  }
  TempDir dir;
};

void check_miss(const w4moe::Result<BuildReport>& result) {
  const std::string message = error_of(result, ErrorCode::not_prepared);
  CHECK(has(message, "compiling is forbidden"));
  CHECK(has(message, "arch = sm_90a"));                 // the key's inputs
  CHECK(has(message, "the nearest entry, "));           // and what is there instead
  CHECK(has(message, "'.hidden = 512,' is wanted, '.hidden = 256,' is there"));
  CHECK(has(message, "\"hidden\""));                    // the manifest entry
  CHECK(has(message, "w4moe build --arch sm_90a"));
}

}  // namespace

TEST_CASE_METHOD(Shipped, "C22: freeze: a miss is an error with the key's inputs, the nearest entry and the manifest entry; what is there is served") {
  FakeWorld world;
  Engine engine = this->engine(world, JitMode::on);
  CHECK_FALSE(engine.frozen());
  engine.freeze();
  CHECK(engine.frozen());
  check_miss(engine.build(other_plan()));
  check_miss(engine.preload(other_plan()));
  CHECK(must(engine.build(small_plan())).hits == static_cast<int>(small_plan().kernels.size()));
  CHECK(world.compiler->compiles == 0);
  CHECK(world.driver.count("library_load_data") == static_cast<int>(small_plan().kernels.size()));
  CHECK_FALSE(std::filesystem::exists(dir / "none"));  // before any lock is taken, and without one
}

TEST_CASE_METHOD(Shipped, "C22: jit = off and W4MOE_JIT=off are frozen from the start") {
  FakeWorld world;
  Engine engine = this->engine(world, JitMode::off);
  CHECK(engine.frozen());
  check_miss(engine.build(other_plan()));
  const EnvGuard guard("W4MOE_JIT", "off");
  EngineOptions options = world.options();
  options.kernels.jit.reset();
  Engine by_variable = must(Engine::create(options));
  CHECK(by_variable.frozen());
  CHECK(has(error_of(by_variable.build(small_plan()), ErrorCode::not_prepared), "the cache is empty"));
  CHECK(world.compiler->compiles == 0);
}

TEST_CASE_METHOD(Shipped, "C18: built ahead of time, every token count runs with JIT off: no compile, no load after the first build") {
  FakeWorld world;
  const Plan plan = small_plan();
  Engine engine = this->engine(world, JitMode::off);
  must(engine.build(plan));
  const LayerMemory memory(world.driver.table(), plan);
  const PreparedWeights weights = must(engine.adopt(memory.weights.data(), memory.weights.bytes()));
  const Binding binding = must(engine.bind(plan, weights, memory.scratch.data(), memory.scratch.bytes()));
  const int loads = world.driver.count("library_load_data");
  for (i64 tokens = 0; tokens <= plan.problem.shape.max_tokens; ++tokens) must(engine.run(binding, nullptr, memory.args(tokens)));
  CHECK(world.compiler->compiles == 0);
  CHECK(world.driver.count("library_load_data") == loads);
  CHECK(world.driver.count("kernel_get_function") == static_cast<int>(plan.kernels.size()));
}

TEST_CASE_METHOD(Shipped, "R05: preload resolves every function of the plan; no run loads anything, under LAZY and EAGER alike") {
  for (const char* loading : {"LAZY", "EAGER"}) {
    const EnvGuard guard("CUDA_MODULE_LOADING", loading);
    FakeWorld world;
    const Plan plan = small_plan();
    Engine engine = this->engine(world, JitMode::on);
    const BuildReport report = must(engine.preload(plan));
    CHECK(report.compiled == 0);
    const int count = static_cast<int>(plan.kernels.size());
    for (const char* call : {"library_load_data", "library_get_kernel", "kernel_get_function", "func_load"}) CHECK(world.driver.count(call) == count);
    const LayerMemory memory(world.driver.table(), plan);
    const PreparedWeights weights = must(engine.adopt(memory.weights.data(), memory.weights.bytes()));
    const Binding binding = must(engine.bind(plan, weights, memory.scratch.data(), memory.scratch.bytes()));
    world.driver.clear_calls();
    for (const i64 tokens : {1, 2, 9, 64}) must(engine.run(binding, nullptr, memory.args(tokens)));
    for (const char* call : {"library_load_data", "library_get_kernel", "kernel_get_function", "func_load", "func_set_attribute"}) {
      CHECK(world.driver.count(call) == 0);
    }
    must(engine.preload(plan));  // again: nothing to do
    CHECK(world.driver.count("library_load_data") == 0);
  }
}

TEST_CASE_METHOD(Shipped, "R05, R06: preload and a frozen build on a capturing stream are refused before any call that would break the capture") {
  FakeWorld world;
  Engine engine = this->engine(world, JitMode::on);
  engine.freeze();
  const driver::Stream stream = world.driver.make_stream();
  LoadOptions options;
  options.stream = stream;
  const auto graph = must(driver::OwnedGraph::capture(world.driver.table(), stream, [&]() -> Status {
    CHECK(has(error_of(engine.preload(small_plan(), options), ErrorCode::not_prepared), "captur"));
    CHECK(has(error_of(engine.build(small_plan(), options), ErrorCode::not_prepared), "captur"));
    return {};
  }));
  CHECK(must(graph.node_count()) == 0);  // the capture is whole
  CHECK(world.driver.count("library_load_data") == 0);
  must(engine.preload(small_plan(), options));
}

TEST_CASE("C34: kernels are found by name without any tool: PATH is empty, and a cubin with another symbol is not the kernel") {
  const EnvGuard guard("PATH", "");
  FakeWorld world;
  world.compiler->add(small_plan());
  world.compiler->change = [](FakeCubin& cubin) { cubin.kernels[0].name += "_v2"; };
  Engine engine = world.engine();
  const std::string message = error_of(engine.build(small_plan()), ErrorCode::internal);
  CHECK(has(message, "not what was asked for"));
  CHECK(world.driver.count("library_load_data") == 0);
  world.compiler->change = nullptr;
  must(engine.build(small_plan()));
}

TEST_CASE("C34: an entry whose metadata names another symbol serves its kernel; one whose cubin does is damaged and made anew") {
  const TempDir dir;
  const Plan plan = small_plan();
  FakeWorld world;
  world.compiler->add(plan);
  EngineOptions options = world.options();
  options.kernels.cache = CacheUse::on;
  options.kernels.cache_dir = (dir / "cache").string();
  for (const PlannedKernel& kernel : plan.kernels) {
    FakeCubin cubin = fake_cubin(kernel.variant);
    if (kernel.variant.kind == KernelKind::fc1) cubin.kernels[0].name = "w4moe_fc9";
    const auto bytes = cubin.bytes();
    cache::DiskOptions disk;
    disk.root = *options.kernels.cache_dir;
    cache::DiskStore(disk).put(
        cache::make_entry(bytes.data(), bytes.size(), kernel_key_text(compile_request(kernel.variant)), "13.0.88", R"({"entry": "w4moe_other"})"));
  }
  Engine engine = must(Engine::create(options));
  const BuildReport report = must(engine.build(plan));
  int fc1 = 0;
  for (const PlannedKernel& kernel : plan.kernels) fc1 += kernel.variant.kind == KernelKind::fc1 ? 1 : 0;
  CHECK(report.compiled == fc1);  // the symbol that counts is the cubin's own
  CHECK(report.hits == static_cast<int>(plan.kernels.size()) - fc1);
  CHECK(must(must(Engine::create(options)).build(plan)).hits == static_cast<int>(plan.kernels.size()));
}
