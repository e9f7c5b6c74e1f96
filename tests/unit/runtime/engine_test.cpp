#include "w4moe/engine.hpp"

#include <cstring>

#include "tests/unit/runtime/built_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

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
  must(layer.engine.run(*layer.binding, stream, layer.memory->args(3)));
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

TEST_CASE("C26: driver failures are returned with call, kernel, target, driver and NVRTC, and nothing is left half loaded") {
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
  const std::string message = error_of(layer.engine.run(*layer.binding, nullptr, layer.memory->args(3)), ErrorCode::driver);
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
