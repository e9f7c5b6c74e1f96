// EngineDevice::lockstep: the public interface, from plan to output, with host memory for device memory.
#include <cstring>

#include "runtime/reference/reference.hpp"
#include "runtime/reference/metrics.hpp"
#include "tests/lockstep/buffer.hpp"
#include "tests/lockstep/support.hpp"
#include "tests/support/layers.hpp"
#include "w4moe/engine.hpp"

#if !defined(__SANITIZE_THREAD__)

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

EngineOptions lockstep_options() {
  EngineOptions options;
  options.device = EngineDevice::lockstep;
  options.kernels.cache_dir = W4MOE_BINARY_DIR "/api-cache";
  return options;
}

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

}  // namespace

TEST_CASE("T1: the engine runs a layer on the lock-step device, from plan to output") {
  Engine engine = must(Engine::create(lockstep_options()));
  const DeviceSpec device = must(engine.device());
  CHECK(device.sms == 4);
  CHECK(must(engine.device(0)).name == device.name);
  CHECK_FALSE(engine.device(1));
  const Problem problem = test::small_problem(128, 64, 4);
  const Plan plan = must(make_plan(problem, device));

  const SyntheticLayer layer = make_layer(problem, {});
  Buffer packed(plan.prepared_weight_bytes());
  REQUIRE_OK(pack_on_cpu(problem, layer.source, {packed.as<std::byte>(), static_cast<std::size_t>(packed.bytes())}));
  const PreparedWeights weights = must(engine.adopt(packed.data(), packed.bytes()));
  Buffer scratch(plan.required_bytes());

  const Result<Binding> early = engine.bind(plan, weights, scratch.data(), scratch.bytes());
  REQUIRE_FALSE(early);
  CHECK(early.error().code == ErrorCode::not_prepared);
  const BuildReport built = must(engine.build(plan));
  CHECK(built.kernels.size() == plan.kernels.size());
  CHECK(must(engine.preload(plan)).hits == static_cast<int>(plan.kernels.size()));
  const Binding binding = must(engine.bind(plan, weights, scratch.data(), scratch.bytes()));

  const SyntheticInputs made = make_inputs(problem, 9, {}, IdType::i32, DType::f32);
  std::vector<u16> x = made.x;
  std::vector<i32> ids(made.ids.begin(), made.ids.end());
  std::vector<u16> out(x.size());
  RunArgs args;
  args.tokens = 9;
  args.x = x.data();
  args.ids = ids.data();
  args.router_weights = made.weights.data();
  args.out = out.data();

  const Status unprepared = engine.run(binding, nullptr, args);  // no init_scratch: the kernels say so instead of computing
  CHECK(unprepared);
  CHECK(must(engine.status(binding)).code == KernelStatus::control_corrupt);
  REQUIRE_OK(engine.init_scratch(binding, nullptr));
  REQUIRE_OK(engine.run(binding, nullptr, args));
  CHECK(must(engine.status(binding)).ok());

  std::vector<u16> mirror(out.size());
  const MoeInputs inputs{9, x.data(), 128, ids.data(), IdType::i32, 2, made.weights.data(), DType::f32, 2};
  REQUIRE_OK(reference_mirror(problem, layer.source, inputs, mirror));
  CHECK(max_ulp_distance(DType::bf16, out, mirror) <= 2);

  CHECK_FALSE(engine.run(binding, &args, args));  // there are no streams
  args.tokens = 65;
  CHECK_FALSE(engine.run(binding, nullptr, args));
  CHECK(engine.unload(plan));
}

TEST_CASE("T1: a kernel that is not compiled yet is not compiled where that is off") {
  EngineOptions options = lockstep_options();
  options.kernels.cache_dir = W4MOE_BINARY_DIR "/api-cache-empty";
  Engine engine = must(Engine::create(std::move(options)));
  const Result<BuildReport> built = engine.preload(must(make_plan(test::small_problem(96, 64, 4), must(engine.device()))));
  REQUIRE_FALSE(built);
  CHECK(built.error().code == ErrorCode::not_prepared);
}

#endif
