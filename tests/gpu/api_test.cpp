// The engine's contract on a real GPU: checks, sizes, no tokens, statuses.
#include <cstring>

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "tests/support/device_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

bool all_bytes(const driver::DeviceBuffer& buffer, u8 value) {
  std::vector<u8> bytes(static_cast<std::size_t>(buffer.bytes()));
  gpu_must(buffer.download(bytes.data(), buffer.bytes()));
  for (const u8 b : bytes) {
    if (b != value) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("gpu: the whole life of a layer gives what the reference gives") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  for (const i64 tokens : {1, 7, 64}) {
    const DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
    const std::vector<u16> out = layer.run(inputs);
    std::vector<u16> mirror(out.size());
    gpu_must(reference_mirror(layer.plan.problem, layer.host.source, inputs.host.inputs, mirror));
    std::vector<double> exact(out.size());
    gpu_must(reference_fp64(layer.plan.problem, layer.host.source, inputs.host.inputs, exact));
    const ErrorReport got = compare_outputs(DType::bf16, out, exact, 256);
    const ErrorReport allowed = compare_outputs(DType::bf16, mirror, exact, 256);
    const ContractVerdict verdict = check_contract(layer.plan.problem, got, allowed);
    INFO("tokens " << tokens << ": " << verdict.reason);
    CHECK(verdict.holds);
    CHECK(gpu_must(engine.status(*layer.binding)).ok());
  }
}

TEST_CASE("gpu: bad arguments are refused before any launch, and no error sticks to the context") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 4);
  const std::vector<u16> before = layer.run(inputs);
  gpu_must(inputs.out.fill(0x3c));
  const auto refused = [&](auto change) {
    RunArgs args = inputs.args;
    change(args);
    const Status s = engine.run(*layer.binding, nullptr, args);
    return !s.ok() && s.error().code == ErrorCode::invalid_argument;
  };
  CHECK(refused([](RunArgs& a) { a.tokens = 65; }));
  CHECK(refused([](RunArgs& a) { a.tokens = -1; }));
  CHECK(refused([](RunArgs& a) { a.x = nullptr; }));
  CHECK(refused([](RunArgs& a) { a.x = static_cast<const u8*>(a.x) + 2; }));
  CHECK(refused([](RunArgs& a) { a.out = static_cast<u8*>(a.out) + 8; }));
  CHECK(refused([](RunArgs& a) { a.ids = nullptr; }));
  CHECK(refused([](RunArgs& a) { a.router_weights = nullptr; }));
  CHECK(refused([](RunArgs& a) { a.router_dtype = DType::f16; }));
  CHECK(refused([](RunArgs& a) { a.x_row_stride_elems = 255; }));
  CHECK(refused([&](RunArgs& a) { a.out = layer.scratch.data(); }));
  gpu_must(driver::check(*gpu.table, gpu.table->ctx_synchronize(), "cuCtxSynchronize"));
  CHECK(all_bytes(inputs.out, 0x3c));
  CHECK(layer.run(inputs) == before);
}

TEST_CASE("S01: scratch of exactly required_bytes serves, one byte less is refused with both numbers") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const i64 needed = layer.plan.required_bytes();
  REQUIRE(layer.scratch.bytes() == needed);
  layer.run(DeviceInputs(*gpu.table, layer.plan.problem, 64));
  const auto binding = engine.bind(layer.plan, layer.binding->weights(), layer.scratch.data(), needed - 1);
  REQUIRE_FALSE(binding.ok());
  CHECK(binding.error().message.find(std::to_string(needed)) != std::string::npos);
  CHECK(binding.error().message.find(std::to_string(needed - 1)) != std::string::npos);
}

TEST_CASE("P1, S02: the highest byte of scratch that runs touch is the last that was asked for, and nothing beyond") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  constexpr i64 kBeyond = 1 << 20;
  DeviceLayer layer(*gpu.table, engine, gpu_problem(), {}, {}, kBeyond);
  std::vector<u8> touched(static_cast<std::size_t>(layer.scratch.bytes()), 0);
  // A byte that keeps two different fillings was not written.
  for (const u8 filling : {u8{0xa5}, u8{0x5a}}) {
    for (i64 tokens = 1; tokens <= 64; ++tokens) {
      std::vector<u8> bytes(touched.size() - static_cast<std::size_t>(kControlBytes), filling);
      gpu_must(layer.scratch.upload(bytes.data(), static_cast<i64>(bytes.size()), kControlBytes));
      layer.run(DeviceInputs(*gpu.table, layer.plan.problem, tokens));
      gpu_must(layer.scratch.download(bytes.data(), static_cast<i64>(bytes.size()), kControlBytes));
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != filling) touched[static_cast<std::size_t>(kControlBytes) + i] = 1;
      }
    }
  }
  i64 highest = static_cast<i64>(touched.size()) - 1;
  while (highest >= 0 && touched[static_cast<std::size_t>(highest)] == 0) --highest;
  CHECK(highest + 1 == layer.plan.scratch.touched_bytes());
}

TEST_CASE("N12: no tokens, eagerly and in a capture: nothing is launched, the output is untouched, the next run is right") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 3);
  const std::vector<u16> expected = layer.run(inputs);
  gpu_must(inputs.out.fill(0x3c));
  RunArgs none = inputs.args;
  none.tokens = 0;
  const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
  gpu_must(engine.run(*layer.binding, stream.handle(), none));
  const auto graph = gpu_must(driver::OwnedGraph::capture(*gpu.table, stream.handle(), [&] { return engine.run(*layer.binding, stream.handle(), none); }));
  CHECK(gpu_must(graph.node_count()) == 0);
  gpu_must(stream.synchronize());
  CHECK(all_bytes(inputs.out, 0x3c));
  CHECK(layer.run(inputs, stream.handle()) == expected);
}

TEST_CASE("P1: a scratch that was not initialised gives NaN and a status, not a number and not a hang") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 5);
  const std::vector<u16> expected = layer.run(inputs);
  for (const u8 filling : {u8{0x00}, u8{0xff}, u8{0x5a}}) {
    gpu_must(layer.scratch.fill(filling));
    for (const u16 bits : layer.run(inputs)) REQUIRE((bits & 0x7f80u) == 0x7f80u);
    CHECK_FALSE(gpu_must(engine.status(*layer.binding)).ok());
  }
  gpu_must(engine.init_scratch(*layer.binding, nullptr));
  CHECK(layer.run(inputs) == expected);
  CHECK(gpu_must(engine.status(*layer.binding)).ok());
}

TEST_CASE("P4: the debug mode is quiet on a sound layer and gives the same bits") {
  W4MOE_NEED_GPU(gpu);
  Engine plain = gpu_must(Engine::create(gpu_engine_options()));
  EngineOptions options = gpu_engine_options();
  options.debug = true;
  Engine debug = gpu_must(Engine::create(options));
  const DeviceLayer layer(*gpu.table, plain, gpu_problem());
  const DeviceLayer watched(*gpu.table, debug, gpu_problem(), {}, {}, debug_guard_bytes());
  for (const i64 tokens : {1, 2, 33, 64}) {
    const DeviceInputs inputs(*gpu.table, layer.plan.problem, tokens);
    CHECK(layer.run(inputs) == watched.run(inputs));
  }
}

TEST_CASE("P3: a run cut into chunks by a scratch cap gives a right result") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  PlanOptions capped;
  capped.scratch_cap_bytes = gpu_must(make_plan(gpu_problem(), gpu_must(engine.device()))).required_bytes() - 1;
  const DeviceLayer layer(*gpu.table, engine, gpu_problem(), capped);
  REQUIRE(layer.plan.chunk_tokens < 64);
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 64);
  const std::vector<u16> out = layer.run(inputs);
  std::vector<u16> mirror(out.size());
  gpu_must(reference_mirror(layer.plan.problem, layer.host.source, inputs.host.inputs, mirror));
  std::vector<double> exact(out.size());
  gpu_must(reference_fp64(layer.plan.problem, layer.host.source, inputs.host.inputs, exact));
  const ContractVerdict verdict = check_contract(layer.plan.problem, compare_outputs(DType::bf16, out, exact, 256), compare_outputs(DType::bf16, mirror, exact, 256));
  INFO(verdict.reason);
  CHECK(verdict.holds);
}

TEST_CASE("R4: row strides of every tensor, and an output in place of the input") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  constexpr i64 kTokens = 9, kWidth = 256, kPitch = 304, kIdPitch = 5, kRouterPitch = 3;
  const DeviceInputs dense(*gpu.table, layer.plan.problem, kTokens);
  const std::vector<u16> expected = layer.run(dense);

  std::vector<u16> x(kTokens * kPitch, 0x7fff);
  std::vector<i32> ids(kTokens * kIdPitch, -7);
  std::vector<float> router(kTokens * kRouterPitch, 1e30f);
  for (i64 t = 0; t < kTokens; ++t) {
    std::memcpy(&x[static_cast<std::size_t>(t * kPitch)], &dense.host.x[static_cast<std::size_t>(t * kWidth)], kWidth * 2);
    for (i64 j = 0; j < 2; ++j) {
      ids[static_cast<std::size_t>(t * kIdPitch + j)] = dense.host.ids[static_cast<std::size_t>(t * 2 + j)];
      router[static_cast<std::size_t>(t * kRouterPitch + j)] = dense.host.weights[static_cast<std::size_t>(t * 2 + j)];
    }
  }
  const auto upload = [&](const void* data, std::size_t bytes) {
    driver::DeviceBuffer buffer = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, static_cast<i64>(bytes)));
    gpu_must(buffer.upload(data, static_cast<i64>(bytes)));
    return buffer;
  };
  const driver::DeviceBuffer dx = upload(x.data(), x.size() * 2);
  const driver::DeviceBuffer dids = upload(ids.data(), ids.size() * 4);
  const driver::DeviceBuffer drouter = upload(router.data(), router.size() * 4);
  RunArgs args;
  args.tokens = kTokens;
  args.x = dx.data();
  args.x_row_stride_elems = kPitch;
  args.ids = dids.data();
  args.ids_row_stride_elems = kIdPitch;
  args.router_weights = drouter.data();
  args.router_row_stride_elems = kRouterPitch;
  args.out = dx.data();
  args.out_row_stride_elems = kPitch;
  gpu_must(engine.run(*layer.binding, nullptr, args));
  gpu_must(driver::check(*gpu.table, gpu.table->ctx_synchronize(), "cuCtxSynchronize"));
  gpu_must(dx.download(x.data(), static_cast<i64>(x.size() * 2)));
  for (i64 t = 0; t < kTokens; ++t) {
    for (i64 c = 0; c < kPitch; ++c) {
      const u16 bits = x[static_cast<std::size_t>(t * kPitch + c)];
      REQUIRE(bits == (c < kWidth ? expected[static_cast<std::size_t>(t * kWidth + c)] : 0x7fff));
    }
  }
}
