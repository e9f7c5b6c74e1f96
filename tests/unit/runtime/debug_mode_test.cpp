#include <cstring>

#include "runtime/dispatch/debug_guard.hpp"
#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

struct DebugLayer {
  explicit DebugLayer(i64 extra_scratch = 0) : plan(small_plan()), engine(make()), memory(world.driver.table(), plan, extra_scratch) {
    world.compiler->add(plan);
    must(engine.build(plan));
    const PreparedWeights weights = must(engine.adopt(memory.weights.data(), memory.weights.bytes()));
    binding.emplace(must(engine.bind(plan, weights, memory.scratch.data(), memory.scratch.bytes())));
    must(engine.init_scratch(*binding, nullptr));
  }
  Engine make() {
    EngineOptions options = world.options();
    options.debug = true;
    return must(Engine::create(options));
  }
  u8* scratch() const { return static_cast<u8*>(memory.scratch.data()); }

  FakeWorld world;
  Plan plan;
  Engine engine;
  LayerMemory memory;
  std::optional<Binding> binding;
};

}  // namespace

TEST_CASE("P4: the debug mode fills the payload before each run and leaves the control region alone") {
  DebugLayer layer;
  std::memset(layer.scratch() + kControlBytes, 0, static_cast<std::size_t>(layer.plan.required_bytes() - kControlBytes));
  const std::vector<u8> control(layer.scratch(), layer.scratch() + kControlBytes);
  int looked = 0;
  layer.world.driver.on_launch = [&](const FakeLaunch& launch) {
    if (launch.kernel != "w4moe_route") return;
    for (const PlannedRegion& region : layer.plan.regions) {
      if (region.region == Region::control) continue;
      for (i64 i = 0; i < region.bytes; ++i) REQUIRE(layer.scratch()[region.offset_bytes + i] == kPoisonByte);
    }
    ++looked;
  };
  must(layer.engine.run(*layer.binding, nullptr, layer.memory.args(3)));
  CHECK(looked == 1);
  CHECK(std::memcmp(control.data(), layer.scratch(), control.size()) == 0);
}

TEST_CASE("P4: a byte written behind any region is found and named") {
  const std::vector<GuardZone> zones = guard_zones(small_plan(), small_plan().required_bytes() + debug_guard_bytes());
  REQUIRE(zones.size() >= 2);
  CHECK(zones.back().bytes >= debug_guard_bytes());
  for (const GuardZone& zone : zones) {
    for (const i64 at : {i64{0}, zone.bytes - 1}) {
      DebugLayer layer(debug_guard_bytes());
      layer.world.driver.on_launch = [&](const FakeLaunch& launch) {
        if (launch.kernel == "w4moe_fc2") layer.scratch()[zone.offset_bytes + at] = 0x11;
      };
      const std::string message = error_of(layer.engine.run(*layer.binding, nullptr, layer.memory.args(3)), ErrorCode::corrupt);
      CHECK(message.find(zone.after) != std::string::npos);
      CHECK(message.find(std::to_string(zone.offset_bytes + at)) != std::string::npos);
    }
  }
}

TEST_CASE("P4: guard zones never overlap a region, and touch no byte beyond the caller's scratch") {
  for (const i64 extra : {i64{0}, i64{1}, i64{4096}, i64{1} << 20}) {
    const Plan plan = small_plan();
    const i64 bytes = plan.required_bytes() + extra;
    for (const GuardZone& zone : guard_zones(plan, bytes)) {
      CHECK(zone.offset_bytes + zone.bytes <= bytes);
      for (const PlannedRegion& region : plan.regions) {
        CHECK((zone.offset_bytes >= region.offset_bytes + region.bytes || zone.offset_bytes + zone.bytes <= region.offset_bytes));
      }
    }
  }
}

TEST_CASE("P4: two runs at once in one scratch, on two streams, are an error that names both") {
  DebugLayer layer;
  const driver::Stream first = layer.world.driver.make_stream();
  const driver::Stream second = layer.world.driver.make_stream();
  std::string message;
  layer.world.driver.on_launch = [&](const FakeLaunch& launch) {
    if (launch.kernel != "w4moe_fc1" || launch.stream != first) return;
    // The first run is under way: another thread tries the same scratch.
    std::thread other([&] {
      FakeDriver::set_current(layer.world.context);
      message = error_of(layer.engine.run(*layer.binding, second, layer.memory.args(3)), ErrorCode::invalid_argument);
    });
    other.join();
  };
  must(layer.engine.run(*layer.binding, first, layer.memory.args(3)));
  CHECK(message.find("in use") != std::string::npos);
  CHECK(message.find(fmt::format("{}", fmt::ptr(first))) != std::string::npos);
  CHECK(message.find(fmt::format("{}", fmt::ptr(second))) != std::string::npos);
  layer.world.driver.on_launch = nullptr;
  must(layer.engine.run(*layer.binding, second, layer.memory.args(3)));
}

TEST_CASE("P4: in a capture the debug mode records fills and launches, and waits for nothing") {
  DebugLayer layer;
  const driver::Stream stream = layer.world.driver.make_stream();
  layer.world.driver.clear_calls();
  const auto graph = must(driver::OwnedGraph::capture(layer.world.driver.table(), stream,
                                                      [&] { return layer.engine.run(*layer.binding, stream, layer.memory.args(3)); }));
  CHECK(must(graph.node_count()) > 4);
  CHECK(layer.world.driver.count("stream_synchronize") == 0);
  CHECK(layer.world.driver.count("memcpy_dtoh") == 0);
}

TEST_CASE("scratch in use: ranges that touch are apart, ranges that share a byte are not") {
  ScratchUse use;
  auto* base = reinterpret_cast<u8*>(u64{0x10000});
  must(use.enter(base, 0x100, nullptr));
  must(use.enter(base + 0x100, 0x100, nullptr));
  error_of(use.enter(base + 0xff, 1, nullptr), ErrorCode::invalid_argument);
  error_of(use.enter(base - 0x10, 0x11, nullptr), ErrorCode::invalid_argument);
  error_of(use.enter(base - 0x10, 0x1000, nullptr), ErrorCode::invalid_argument);
  use.leave(base);
  must(use.enter(base - 0x10, 0x11, nullptr));
}
