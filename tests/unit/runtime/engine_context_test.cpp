// Captures, contexts, devices and threads: what an engine holds where.
#include "w4moe/engine.hpp"

#include <atomic>
#include <thread>

#include "tests/unit/runtime/built_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

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
    must(layer.engine.run(*layer.binding, stream0, layer.memory->args(3)));
    must(layer.engine.run(binding1, stream1, memory1.args(3)));
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
