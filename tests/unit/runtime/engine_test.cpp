#include "w4moe/engine.hpp"

#include <cstring>

#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A layer that is built and bound.
struct Layer {
  explicit Layer(FakeWorld& w, const Plan& p = small_plan(), EngineOptions options = {}) : world(w), plan(p), engine(make(w, std::move(options))) {
    world.compiler->add(plan);
    must(engine.build(plan));
    memory.emplace(world.driver.table(), plan);
    binding.emplace(bind());
  }
  static Engine make(FakeWorld& w, EngineOptions extra) {
    EngineOptions options = w.options();
    options.debug = extra.debug;
    return must(Engine::create(options));
  }
  Binding bind() const {
    const PreparedWeights weights = must(engine.adopt(memory->weights.data(), memory->weights.bytes()));
    return must(engine.bind(plan, weights, memory->scratch.data(), memory->scratch.bytes()));
  }

  FakeWorld& world;
  Plan plan;
  Engine engine;
  std::optional<LayerMemory> memory;
  std::optional<Binding> binding;
};

}  // namespace

TEST_CASE("R04: making an engine, planning and pricing call no driver function and initialise nothing") {
  FakeDriver fake;
  EngineOptions options;
  options.driver = &fake.table();
  const Engine engine = must(Engine::create(options));
  const DeviceSpec device = named_device(Arch::sm_90a);
  must(supports(small_problem(), device));
  CHECK(must(required_bytes(small_problem(), device)) == small_plan().required_bytes());
  CHECK(fake.calls().empty());
}

TEST_CASE("engine: the device is the current context's, or named by ordinal without a context") {
  FakeWorld world({FakeDevice{"Card A", 9, 0, 132, 232448, 233472}, FakeDevice{"Card B", 12, 0, 170, 101376, 102400}});
  const Engine engine = world.engine();
  CHECK(must(engine.device()).name == "Card A");
  CHECK(must(engine.device(1)).arch == Arch::sm_120a);
  error_of(engine.device(2), ErrorCode::invalid_argument);
  error_of(engine.device(-1), ErrorCode::invalid_argument);
  FakeDriver::set_current(nullptr);
  CHECK(has(error_of(engine.device(), ErrorCode::driver), "no CUDA context is current"));
  CHECK(world.driver.count("device_primary_ctx_retain") == 0);  // R02: none is made
  CHECK(world.driver.count("ctx_create") == 0);
}

TEST_CASE("engine: build loads every kernel of the plan, resolved and with its shared memory granted") {
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = small_plan();
  world.compiler->add(plan);
  const BuildReport report = must(engine.build(plan));
  CHECK(report.compiled == static_cast<int>(report.kernels.size()));
  CHECK(world.driver.live_libraries() == static_cast<int>(plan.kernels.size()));
  CHECK(world.driver.count("kernel_get_function") == static_cast<int>(plan.kernels.size()));
  CHECK(world.driver.count("func_load") == static_cast<int>(plan.kernels.size()));  // R05: nothing is left to a lazy launch
  int opt_in = 0;
  for (const PlannedKernel& kernel : plan.kernels) opt_in += kernel_shared_bytes(kernel.variant, plan.problem.shape) > 48 * 1024 ? 1 : 0;
  CHECK(world.driver.count("func_set_attribute") >= opt_in);
}

TEST_CASE("engine: the whole life, with geometry and arguments as the contract says") {
  FakeWorld world;
  Layer layer(world);
  const driver::Stream stream = world.driver.make_stream();
  must(layer.engine.init_scratch(*layer.binding, stream));
  CHECK(must(layer.engine.status(*layer.binding)).ok());
  must(layer.engine.run(*layer.binding, stream, layer.memory->args(5)));
  const std::vector<FakeLaunch> launches = world.driver.launches();
  REQUIRE(launches.size() == 4);
  const char* names[] = {"w4moe_route", "w4moe_fc1", "w4moe_fc2", "w4moe_combine"};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(launches[i].kernel == names[i]);
    CHECK(launches[i].stream == stream);  // R08
    CHECK(launches[i].pdl);
    CHECK(launches[i].grid_y == 1);
  }
  CHECK(launches[0].as<RouteArgs>().tokens == 5);
  CHECK(launches[1].as<Fc1Args>().x == layer.memory->x.data());
  CHECK(launches[3].as<CombineArgs>().out == layer.memory->out.data());
}

TEST_CASE("S09: run calls nothing that allocates, waits, loads or compiles, for any number of tokens") {
  FakeWorld world;
  Layer layer(world);
  const driver::Stream stream = world.driver.make_stream();
  must(layer.engine.init_scratch(*layer.binding, stream));
  for (i64 tokens = 0; tokens <= 64; ++tokens) {
    world.driver.clear_calls();
    must(layer.engine.run(*layer.binding, stream, layer.memory->args(tokens)));
    for (const std::string& call : world.driver.calls()) {
      INFO(call);
      CHECK((call == "stream_get_ctx" || call == "ctx_get_current" || call == "launch_kernel_ex"));
    }
    CHECK(world.driver.count("launch_kernel_ex") == (tokens == 0 ? 0 : static_cast<int>(layer.plan.launched_by(layer.plan.bucket_for(tokens)).size())));
  }
  CHECK(world.compiler->compiles == static_cast<int>(layer.plan.kernels.size()));
}

TEST_CASE("N12: no tokens, eagerly and in a capture: nothing is called, and the next run is right") {
  FakeWorld world;
  Layer layer(world);
  const driver::Stream stream = world.driver.make_stream();
  world.driver.clear_calls();
  must(layer.engine.run(*layer.binding, stream, RunArgs{}));
  CHECK(world.driver.calls().empty());
  const auto graph = must(driver::OwnedGraph::capture(world.driver.table(), stream, [&] { return layer.engine.run(*layer.binding, stream, RunArgs{}); }));
  CHECK(must(graph.node_count()) == 0);
  must(layer.engine.run(*layer.binding, stream, layer.memory->args(2)));
  CHECK(world.driver.count("launch_kernel_ex") == 4);
}

TEST_CASE("S16: too many tokens launch nothing") {
  FakeWorld world;
  Layer layer(world);
  world.driver.clear_calls();
  error_of(layer.engine.run(*layer.binding, world.driver.make_stream(), layer.memory->args(65)), ErrorCode::invalid_argument);
  CHECK(world.driver.count("launch_kernel_ex") == 0);
}

TEST_CASE("S01: bind refuses scratch one byte short") {
  FakeWorld world;
  Layer layer(world);
  const std::string message =
      error_of(layer.engine.bind(layer.plan, layer.binding->weights(), layer.memory->scratch.data(), layer.plan.required_bytes() - 1), ErrorCode::invalid_argument);
  CHECK(has(message, std::to_string(layer.plan.required_bytes())));
  CHECK(has(message, std::to_string(layer.plan.required_bytes() - 1)));
}

TEST_CASE("bind allocates nothing on the device and launches nothing") {
  FakeWorld world;
  Layer layer(world);
  world.driver.clear_calls();
  const Binding second = layer.bind();
  for (const char* call : {"mem_alloc", "launch_kernel_ex", "library_load_data", "memset_d8_async", "stream_synchronize"}) CHECK(world.driver.count(call) == 0);
}

TEST_CASE("adopt reads the header and refuses what is no prepared weights") {
  FakeWorld world;
  Layer layer(world);
  error_of(layer.engine.adopt(layer.memory->x.data(), layer.memory->x.bytes()), ErrorCode::invalid_argument);
  error_of(layer.engine.adopt(layer.memory->weights.data(), 63), ErrorCode::invalid_argument);
  error_of(layer.engine.adopt(layer.memory->weights.data(), layer.memory->weights.bytes() - 1), ErrorCode::invalid_argument);
  error_of(layer.engine.adopt(nullptr, 64), ErrorCode::invalid_argument);
}

TEST_CASE("P1: init_scratch writes the control region and nothing else, and can be captured") {
  FakeWorld world;
  Layer layer(world);
  const auto bytes = static_cast<std::size_t>(layer.memory->scratch.bytes());
  auto* scratch = static_cast<u8*>(layer.memory->scratch.data());
  std::memset(scratch, 0x5a, bytes);
  const driver::Stream stream = world.driver.make_stream();
  const auto graph =
      must(driver::OwnedGraph::capture(world.driver.table(), stream, [&] { return layer.engine.init_scratch(*layer.binding, stream); }));
  CHECK(scratch[0] == 0x5a);  // a capture runs nothing
  must(graph.launch(stream));
  ControlRegion control;
  std::memcpy(&control, scratch, sizeof(control));
  CHECK(control.magic == kControlMagic);
  CHECK(control.version == kControlVersion);
  CHECK(control.status == 0);
  for (std::size_t i = sizeof(control); i < static_cast<std::size_t>(kControlBytes); ++i) REQUIRE(scratch[i] == 0);
  for (std::size_t i = static_cast<std::size_t>(kControlBytes); i < bytes; ++i) REQUIRE(scratch[i] == 0x5a);
}

TEST_CASE("K5: what a kernel records in the control region is what status() reports") {
  FakeWorld world;
  Layer layer(world);
  CHECK_FALSE(must(layer.engine.status(*layer.binding)).ok());  // never initialised
  must(layer.engine.init_scratch(*layer.binding, nullptr));
  CHECK(must(layer.engine.status(*layer.binding)).text == "ok");
  auto* control = static_cast<ControlRegion*>(layer.memory->scratch.data());
  control->status = static_cast<u32>(KernelStatus::control_corrupt);
  CHECK(has(must(layer.engine.status(*layer.binding)).text, "init_scratch"));
  control->status = 77;
  control->status_detail = 5;
  CHECK(has(must(layer.engine.status(*layer.binding)).text, "77"));
}

TEST_CASE("S07: a capture in the strictest mode records the launches, replays need no library call") {
  FakeWorld world;
  Layer layer(world);
  const driver::Stream stream = world.driver.make_stream();
  const auto graph =
      must(driver::OwnedGraph::capture(world.driver.table(), stream, [&] { return layer.engine.run(*layer.binding, stream, layer.memory->args(8)); }));
  CHECK(must(graph.node_count()) == 4);
  for (const FakeLaunch& launch : world.driver.launches()) CHECK(launch.captured);
}

TEST_CASE("R06: an unbuilt plan in a capture is 'not prepared', without a call that breaks the capture") {
  FakeWorld world;
  Layer layer(world);
  Problem other = small_problem();
  other.shape.hidden = 512;
  const Plan unbuilt = plan_of(other);
  world.compiler->add(unbuilt);
  const LayerMemory memory(world.driver.table(), unbuilt);
  const PreparedWeights weights{memory.weights.data(), memory.weights.bytes(), make_weight_header(unbuilt.weights)};
  for (const bool blocking : {false, true}) {
    const driver::Stream stream = world.driver.make_stream(blocking);
    world.driver.clear_calls();
    const auto graph = must(driver::OwnedGraph::capture(world.driver.table(), stream, [&]() -> Status {
      error_of(layer.engine.bind(unbuilt, weights, memory.scratch.data(), memory.scratch.bytes()), ErrorCode::not_prepared);
      LoadOptions options;
      options.stream = stream;
      error_of(layer.engine.build(unbuilt, options), ErrorCode::not_prepared);
      if (blocking) error_of(layer.engine.build(unbuilt), ErrorCode::not_prepared);  // the legacy stream would be drawn in
      return layer.engine.run(*layer.binding, stream, layer.memory->args(3));
    }));
    CHECK(must(graph.node_count()) == 4);
    CHECK(world.driver.count("library_load_data") == 0);
  }
  must(layer.engine.build(unbuilt));
}

TEST_CASE("R06: loading and unloading while another thread captures leaves its capture whole") {
  FakeWorld world;
  Layer layer(world);
  Problem other = small_problem();
  other.shape.hidden = 512;
  const Plan late = plan_of(other);
  world.compiler->add(late);
  const driver::Stream stream = world.driver.make_stream();
  const auto graph = must(driver::OwnedGraph::capture(world.driver.table(), stream, [&]() -> Status {
    std::thread loader([&] {
      FakeDriver::set_current(world.context);
      must(layer.engine.build(late));
      must(layer.engine.unload(late));
    });
    loader.join();
    return layer.engine.run(*layer.binding, stream, layer.memory->args(3));
  }));
  CHECK(must(graph.node_count()) == 4);
  CHECK(world.driver.count("library_unload") > 0);
}

TEST_CASE("S12: 500 cycles of build and unload leave no library behind; a binding keeps its kernels") {
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = small_plan();
  world.compiler->add(plan);
  for (int i = 0; i < 500; ++i) {
    must(engine.build(plan));
    must(engine.unload(plan));
    REQUIRE(world.driver.live_libraries() == 0);
  }
  CHECK(world.compiler->compiles == static_cast<int>(plan.kernels.size()));
  {
    Layer layer(world);
    must(layer.engine.unload(layer.plan));
    CHECK(world.driver.live_libraries() == static_cast<int>(plan.kernels.size()));
    must(layer.engine.run(*layer.binding, nullptr, layer.memory->args(2)));
    error_of(layer.engine.unload(layer.plan), ErrorCode::not_prepared);
    layer.binding.reset();
    CHECK(world.driver.live_libraries() == 0);
  }
}

TEST_CASE("engine: each build is balanced by one unload, and plans share their kernels") {
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = small_plan();
  Problem more = small_problem();
  more.shape.experts = 16;  // the same kernels
  const Plan wide = plan_of(more);
  world.compiler->add(plan);
  world.compiler->add(wide);
  must(engine.build(plan));
  const int loaded = world.driver.live_libraries();
  const BuildReport again = must(engine.build(wide));
  CHECK(again.hits + again.compiled == static_cast<int>(again.kernels.size()));
  must(engine.unload(plan));
  CHECK(world.driver.live_libraries() >= 4);
  must(engine.unload(wide));
  CHECK(world.driver.live_libraries() == 0);
  CHECK(loaded > 0);
}

TEST_CASE("R01: two devices, one engine: each run uses the function of its own context") {
  FakeWorld world({FakeDevice{}, FakeDevice{}});
  const driver::Context first = world.context;
  const driver::Context second = world.driver.make_context(1, false);
  const Plan plan = small_plan();
  Layer layer(world, plan);
  const driver::Stream stream0 = world.driver.make_stream();
  FakeDriver::set_current(second);
  error_of(layer.engine.bind(plan, layer.binding->weights(), layer.memory->scratch.data(), layer.memory->scratch.bytes()), ErrorCode::invalid_argument);
  const int libraries = world.driver.live_libraries();
  must(layer.engine.build(plan));
  CHECK(world.driver.live_libraries() == libraries);  // one library serves both contexts
  const LayerMemory memory1(world.driver.table(), plan);
  const PreparedWeights weights1 = must(layer.engine.adopt(memory1.weights.data(), memory1.weights.bytes()));
  const Binding binding1 = must(layer.engine.bind(plan, weights1, memory1.scratch.data(), memory1.scratch.bytes()));
  const driver::Stream stream1 = world.driver.make_stream();
  world.driver.clear_calls();
  // The current context does not matter, and is the same afterwards.
  for (const driver::Context current : {first, second, driver::Context{}}) {
    FakeDriver::set_current(current);
    must(layer.engine.run(*layer.binding, stream0, layer.memory->args(2)));
    must(layer.engine.run(binding1, stream1, memory1.args(2)));
    CHECK(FakeDriver::current() == current);
  }
  const std::vector<FakeLaunch> launches = world.driver.launches();
  REQUIRE(launches.size() == 24);
  for (const FakeLaunch& launch : launches) CHECK((launch.stream == stream0) == (launch.context_id == launches[0].context_id));
}

TEST_CASE("R02: a stream of another context is refused, and memory of another device") {
  FakeWorld world({FakeDevice{}, FakeDevice{}});
  Layer layer(world);
  FakeDriver::set_current(world.driver.make_context(1, false));
  const driver::Stream foreign = world.driver.make_stream();
  CHECK(has(error_of(layer.engine.run(*layer.binding, foreign, layer.memory->args(1)), ErrorCode::invalid_argument), "belongs to context"));
  error_of(layer.engine.run(*layer.binding, nullptr, layer.memory->args(1)), ErrorCode::invalid_argument);  // the other context's default stream
  error_of(layer.engine.init_scratch(*layer.binding, foreign), ErrorCode::invalid_argument);
  FakeDriver::set_current(nullptr);
  must(layer.engine.run(*layer.binding, nullptr, layer.memory->args(1)));  // no context is current: the binding's default stream
  CHECK(FakeDriver::current() == nullptr);
}

TEST_CASE("C28: a plan for another device is refused before anything is compiled") {
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = plan_of(small_problem(), {}, Arch::sm_120a);
  world.compiler->add(plan);
  const std::string message = error_of(engine.build(plan), ErrorCode::unsupported);
  CHECK(has(message, "sm_120a"));
  CHECK(has(message, "9.0"));
  CHECK(world.compiler->compiles == 0);
}

TEST_CASE("driver failures are returned with the call and the kernel, and nothing is left half loaded") {
  for (const char* call : {"library_load_data", "library_get_kernel", "kernel_get_function", "func_load", "func_get_attribute"}) {
    INFO(call);
    FakeWorld world;
    Engine engine = world.engine();
    const Plan plan = small_plan();
    world.compiler->add(plan);
    world.driver.fail(call, driver::kOutOfMemory, 2);
    const std::string message = error_of(engine.build(plan), ErrorCode::driver);
    CHECK(has(message, "CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK(has(message, "driver 13.0"));   // C26: driver, compiler and arch
    CHECK(has(message, "NVRTC 13.0.88"));
    CHECK(has(message, "sm_90a"));
    CHECK(world.driver.live_libraries() == 0);
    world.driver.clear_failures();
    must(engine.build(plan));
  }
  FakeWorld world;
  Layer layer(world);
  world.driver.fail("launch_kernel_ex", driver::kOutOfMemory, 1);
  const std::string message = error_of(layer.engine.run(*layer.binding, nullptr, layer.memory->args(2)), ErrorCode::driver);
  CHECK(has(message, "fc1"));
  CHECK(has(message, "cuLaunchKernelEx"));
}

TEST_CASE("a cubin that contradicts the plan is refused before the driver sees it") {
  FakeWorld world;
  const Plan plan = small_plan();
  world.compiler->add(plan);
  world.compiler->change = [](FakeCubin& cubin) { cubin.facts[0].second += 1; };
  Engine engine = world.engine();
  CHECK_FALSE(engine.build(plan).ok());
  CHECK(world.driver.count("library_load_data") == 0);
}

TEST_CASE("a device without CUDA: build says so, and planning still works") {
  FakeDriver fake(std::vector<FakeDevice>{});
  EngineOptions options;
  options.driver = &fake.table();
  Engine engine = must(Engine::create(options));
  error_of(engine.device(), ErrorCode::toolchain_missing);
  error_of(engine.build(small_plan()), ErrorCode::toolchain_missing);
}

TEST_CASE("max_tokens 0: the plan has a byte count, binds and runs nothing") {
  FakeWorld world;
  Problem p = small_problem();
  p.shape.max_tokens = 0;
  Layer layer(world, plan_of(p));
  world.driver.clear_calls();
  must(layer.engine.run(*layer.binding, nullptr, layer.memory->args(0)));
  error_of(layer.engine.run(*layer.binding, nullptr, layer.memory->args(1)), ErrorCode::invalid_argument);
  CHECK(world.driver.count("launch_kernel_ex") == 0);
}

TEST_CASE("R09: 32 threads build and bind the same plan while another unloads everything: no hang, one compile a kernel") {
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = small_plan();
  world.compiler->add(plan);
  world.compiler->delay = std::chrono::milliseconds(2);
  const LayerMemory memory(world.driver.table(), plan);
  const PreparedWeights weights = must(engine.adopt(memory.weights.data(), memory.weights.bytes()));
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 32; ++t) {
    threads.emplace_back([&] {
      FakeDriver::set_current(world.context);
      if (!engine.build(plan)) ++failures;
      const auto binding = engine.bind(plan, weights, memory.scratch.data(), memory.scratch.bytes());
      if (!binding && binding.error().code != ErrorCode::not_prepared) ++failures;  // unloaded meanwhile
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 20; ++i) engine.unload_all();
  });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(world.compiler->compiles == static_cast<int>(plan.kernels.size()));
}
