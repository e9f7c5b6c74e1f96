// Captured graphs on a real GPU.
#include <random>

#include "tests/support/device_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

/// Ids of one call: balanced, all to one expert, none valid, or any value at all.
std::vector<i32> ids_of(int kind, std::size_t count, std::mt19937& random) {
  std::vector<i32> ids(count);
  for (i32& id : ids) {
    switch (kind % 4) {
      case 0: id = static_cast<i32>(random() % 8); break;
      case 1: id = 5; break;
      case 2: id = -1; break;
      default: id = static_cast<i32>(random()); break;
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("S07: a graph replayed 1000 times with new inputs and routing equals eager runs bit for bit") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 13);
  const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
  const auto graph = gpu_must(driver::OwnedGraph::capture(*gpu.table, stream.handle(), [&] { return engine.run(*layer.binding, stream.handle(), inputs.args); }));
  std::mt19937 random(7);
  std::vector<u16> x(inputs.host.x);
  std::vector<u8> payload(static_cast<std::size_t>(layer.scratch.bytes() - kControlBytes));
  for (u8& byte : payload) byte = static_cast<u8>(random());
  gpu_must(layer.scratch.upload(payload.data(), static_cast<i64>(payload.size()), kControlBytes));
  for (int i = 0; i < 1000; ++i) {
    const std::vector<i32> ids = ids_of(i, inputs.host.ids.size(), random);
    std::shuffle(x.begin(), x.end(), random);
    gpu_must(inputs.ids.upload(ids.data(), inputs.ids.bytes()));
    gpu_must(inputs.x.upload(x.data(), inputs.x.bytes()));
    gpu_must(inputs.out.fill(0xff));
    gpu_must(graph.launch(stream.handle()));
    gpu_must(stream.synchronize());
    const std::vector<u16> replayed = inputs.download();
    REQUIRE(layer.run(inputs, stream.handle()) == replayed);
  }
}

TEST_CASE("S05: a graph of a small run replays rightly after larger eager runs in the same scratch") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  Problem problem = gpu_problem();
  problem.shape.max_tokens = 4096;
  const DeviceLayer layer(*gpu.table, engine, problem);
  const DeviceInputs small(*gpu.table, problem, 8);
  const DeviceInputs large(*gpu.table, problem, 4096);
  const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
  const std::vector<u16> expected = layer.run(small, stream.handle());
  const auto graph = gpu_must(driver::OwnedGraph::capture(*gpu.table, stream.handle(), [&] { return engine.run(*layer.binding, stream.handle(), small.args); }));
  layer.run(large, stream.handle());
  for (int i = 0; i < 100; ++i) {
    gpu_must(small.out.fill(0xff));
    gpu_must(graph.launch(stream.handle()));
    gpu_must(stream.synchronize());
    REQUIRE(small.download() == expected);
  }
}

TEST_CASE("S09: every bucket can be captured in the strictest mode") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  Problem problem = gpu_problem();
  problem.shape.max_tokens = 4096;
  const DeviceLayer layer(*gpu.table, engine, problem);
  const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
  for (const Bucket& bucket : layer.plan.buckets) {
    const DeviceInputs inputs(*gpu.table, problem, bucket.last_tokens);
    const std::vector<u16> expected = layer.run(inputs, stream.handle());
    const auto graph = gpu_must(driver::OwnedGraph::capture(*gpu.table, stream.handle(), [&] { return engine.run(*layer.binding, stream.handle(), inputs.args); }));
    CHECK(gpu_must(graph.node_count()) == layer.plan.launched_by(bucket).size());
    gpu_must(inputs.out.fill(0xff));
    gpu_must(graph.launch(stream.handle()));
    gpu_must(stream.synchronize());
    CHECK(inputs.download() == expected);
  }
}

TEST_CASE("R06: a plan that is not built gives 'not prepared' in a capture, which stays valid and replays") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  Problem other = gpu_problem();
  other.shape.hidden = 512;
  const Plan unbuilt = gpu_must(make_plan(other, gpu_must(engine.device())));
  const driver::DeviceBuffer memory = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, unbuilt.required_bytes() + unbuilt.prepared_weight_bytes()));
  const PreparedWeights weights{static_cast<u8*>(memory.data()) + unbuilt.required_bytes(), unbuilt.prepared_weight_bytes(), make_weight_header(unbuilt.weights)};
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 6);
  for (const bool blocking : {false, true}) {
    const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table, blocking));
    const std::vector<u16> expected = layer.run(inputs, stream.handle());
    const auto graph = gpu_must(driver::OwnedGraph::capture(*gpu.table, stream.handle(), [&]() -> Status {
      const auto binding = engine.bind(unbuilt, weights, memory.data(), unbuilt.required_bytes());
      CHECK((!binding && binding.error().code == ErrorCode::not_prepared));
      LoadOptions options;
      options.stream = stream.handle();
      const auto built = engine.build(unbuilt, options);
      CHECK((!built && built.error().code == ErrorCode::not_prepared));
      return engine.run(*layer.binding, stream.handle(), inputs.args);
    }));
    gpu_must(inputs.out.fill(0xff));
    gpu_must(graph.launch(stream.handle()));
    gpu_must(stream.synchronize());
    CHECK(inputs.download() == expected);
  }
}
