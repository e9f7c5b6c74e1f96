// The C interface from options to launches, on the recording driver.
#include <thread>

#include "tests/unit/capi/support.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_CASE("c api: versions, names of statuses, and NULL handles") {
  CHECK(w4moe_abi_version() == W4MOE_ABI_VERSION);
  CHECK(std::string(w4moe_version()).size() >= 5);
  CHECK(std::string(w4moe_status_name(W4MOE_NOT_PREPARED)) == "not_prepared");
  CHECK(std::string(w4moe_status_name(99)) == "unknown");
  w4moe_engine_destroy(nullptr);
  w4moe_plan_destroy(nullptr);
  w4moe_binding_destroy(nullptr);
  CHECK(has(c_error(w4moe_run(nullptr, nullptr, nullptr), W4MOE_INVALID_ARGUMENT), "binding is NULL"));
  CHECK(has(c_error(w4moe_engine_create(nullptr, nullptr), W4MOE_INVALID_ARGUMENT), "engine is NULL"));
  CHECK(has(c_error(w4moe_engine_build(nullptr, nullptr, nullptr, nullptr), W4MOE_INVALID_ARGUMENT), "engine is NULL"));
  CHECK(w4moe_plan_explain(nullptr) == nullptr);
  CHECK(w4moe_engine_is_frozen(nullptr) == 0);
  char buffer[4] = "abc";
  CHECK(w4moe_engine_last_error(nullptr, buffer, sizeof(buffer)) == 1);
  CHECK(buffer[0] == 0);
}

TEST_CASE("R04: c api: engine, plan, prices and explanation call no driver function") {
  FakeWorld world;
  world.driver.clear_calls();
  const OwnedEngine engine = c_engine(world);
  const w4moe_problem problem = c_problem();
  w4moe_plan_options options;
  W4MOE_INIT(options);
  options.arch = "sm_90a";
  OwnedPlan plan;
  c_ok(w4moe_plan_create(engine, &problem, &options, &plan.handle));
  w4moe_plan_info info;
  W4MOE_INIT(info);
  c_ok(w4moe_plan_get_info(plan, &info));
  CHECK(info.scratch_bytes == small_plan().required_bytes());
  CHECK(info.prepared_weight_bytes == small_plan().prepared_weight_bytes());
  CHECK(std::string(info.arch) == "sm_90a");
  CHECK(info.sms == 132);
  CHECK(has(w4moe_plan_explain(plan), "fc1"));
  CHECK(has(w4moe_plan_json(plan), "\"scratch_bytes\""));
  char launches[128];
  CHECK(w4moe_plan_launches(plan, 5, launches, sizeof(launches)) > 1);
  CHECK(has(launches, "route + fc1"));
  CHECK(w4moe_plan_launches(plan, 65, launches, sizeof(launches)) == 0);
  OwnedPlan without_engine;
  c_ok(w4moe_plan_create(nullptr, &problem, &options, &without_engine.handle));
  CHECK(world.driver.calls().empty());
}

TEST_CASE("c api: the device is named, the context's, or the ordinal's") {
  FakeWorld world({FakeDevice{"Card A", 9, 0, 132, 232448, 233472}, FakeDevice{"Card B", 12, 0, 170, 101376, 102400}});
  const auto arch_of = [](const OwnedPlan& plan) {
    w4moe_plan_info info;
    W4MOE_INIT(info);
    c_ok(w4moe_plan_get_info(plan, &info));
    return std::string(info.arch);
  };
  const OwnedEngine current = c_engine(world), second = c_engine(world, W4MOE_DEVICE_CUDA, 1), none = c_engine(world, W4MOE_DEVICE_CUDA, 2);
  CHECK(arch_of(c_plan(current)) == "sm_90a");
  CHECK(arch_of(c_plan(second)) == "sm_120a");
  const w4moe_problem problem = c_problem();
  w4moe_plan* plan = nullptr;
  CHECK(has(c_error(w4moe_plan_create(none, &problem, nullptr, &plan), W4MOE_INVALID_ARGUMENT), "device 2"));
  CHECK(has(c_error(w4moe_plan_create(nullptr, &problem, nullptr, &plan), W4MOE_INVALID_ARGUMENT), "neither an engine nor options.arch"));
  CHECK(plan == nullptr);
  w4moe_engine_options options;
  W4MOE_INIT(options);
  options.ordinal = 1;
  w4moe_engine* engine = nullptr;
  CHECK(has(c_error(w4moe_engine_create(&options, &engine), W4MOE_INVALID_ARGUMENT), "ordinal = 1"));
  options.ordinal = 0;
  options.device = 7;
  CHECK(has(c_error(w4moe_engine_create(&options, &engine), W4MOE_INVALID_ARGUMENT), "device = 7"));
}

TEST_CASE("R02: c api: an engine of one device refuses a context of another, and changes none") {
  FakeWorld world({FakeDevice{}, FakeDevice{}});
  const OwnedEngine engine = c_engine(world, W4MOE_DEVICE_CUDA, 1);
  const OwnedPlan plan = c_plan(engine);
  world.compiler->add(plan.handle->plan);
  CHECK(has(c_error(w4moe_engine_build(engine, plan, nullptr, nullptr), W4MOE_INVALID_ARGUMENT), "for device 1, the current context is on device 0"));
  const driver::Context second = world.driver.make_context(1);
  c_ok(w4moe_engine_build(engine, plan, nullptr, nullptr));
  CHECK(FakeDriver::current() == second);
  CHECK(world.driver.count("ctx_create") + world.driver.count("device_primary_ctx_retain") == 0);
  FakeDriver::set_current(nullptr);
  CHECK(has(c_error(w4moe_engine_build(engine, plan, nullptr, nullptr), W4MOE_DRIVER), "no CUDA context is current"));
}

TEST_CASE("R01: c api: one plan on two devices, launches by turns from a thread that has neither context") {
  FakeWorld world({FakeDevice{}, FakeDevice{}});
  CLayer first(world);
  const driver::Stream first_stream = world.driver.make_stream();
  const driver::Context other = world.driver.make_context(1);
  CLayer second(world);
  const driver::Stream second_stream = world.driver.make_stream();
  std::thread([&] {
    for (int i = 0; i < 3; ++i) {
      const w4moe_run_args a = c_args(first.memory, 4), b = c_args(second.memory, 4);
      c_ok(w4moe_run(first.binding, first_stream, &a));
      c_ok(w4moe_run(second.binding, second_stream, &b));
      CHECK(has(c_error(w4moe_run(first.binding, second_stream, &a), W4MOE_INVALID_ARGUMENT), "stream"));
    }
  }).join();
  int on_second = 0;
  for (const FakeLaunch& launch : world.driver.launches()) on_second += launch.stream == second_stream ? 1 : 0;
  CHECK(on_second * 2 == static_cast<int>(world.driver.launches().size()));
  CHECK(FakeDriver::current() == other);
}

TEST_CASE("R08: c api: the whole life, every operation on the caller's stream") {
  FakeWorld world;
  const OwnedEngine engine = c_engine(world);
  const OwnedPlan plan = c_plan(engine);
  world.compiler->add(plan.handle->plan);
  int seen = 0;
  w4moe_build_options build;
  W4MOE_INIT(build);
  build.user = &seen;
  build.progress = [](void* user, const char* kernel, int32_t hit, int32_t done, int32_t total) {
    CHECK(std::string(kernel).size() > 1);
    CHECK(hit == 0);
    CHECK(done <= total);
    ++*static_cast<int*>(user);
  };
  w4moe_build_report report;
  W4MOE_INIT(report);
  c_ok(w4moe_engine_build(engine, plan, &build, &report));
  CHECK(report.kernels == seen);
  CHECK(report.compiled == seen);
  LayerMemory memory(world.driver.table(), plan.handle->plan);
  w4moe_binding* made = nullptr;
  c_ok(w4moe_bind(engine, plan, memory.weights.data(), memory.weights.bytes(), memory.scratch.data(), memory.scratch.bytes(), &made));
  const OwnedBinding binding(made);
  const driver::Stream stream = world.driver.make_stream();
  w4moe_binding_report status;
  W4MOE_INIT(status);
  c_ok(w4moe_binding_get_status(binding, &status));
  CHECK(status.code == 1);
  c_ok(w4moe_init_scratch(binding, stream));
  c_ok(w4moe_binding_get_status(binding, &status));
  CHECK(std::string(status.text) == "ok");
  w4moe_run_args args = c_args(memory, 5);
  c_ok(w4moe_run(binding, stream, &args));
  REQUIRE(world.driver.launches().size() == 4);
  for (const FakeLaunch& launch : world.driver.launches()) CHECK(launch.stream == stream);
  CHECK(world.driver.launches()[3].as<CombineArgs>().out == memory.out.data());
  args.tokens = 65;
  CHECK(has(c_error(w4moe_run(binding, stream, &args), W4MOE_INVALID_ARGUMENT), "65"));
  c_ok(w4moe_engine_unload(engine, plan));
}

TEST_CASE("N27: c api: types of ids and router weights must be named, and reach the kernels") {
  FakeWorld world;
  const CLayer layer(world);
  const driver::Stream stream = world.driver.make_stream();
  w4moe_run_args args = c_args(layer.memory, 3);
  args.id_type = 0;
  CHECK(has(c_error(w4moe_run(layer.binding, stream, &args), W4MOE_INVALID_ARGUMENT), "id_type = 0"));
  args.id_type = W4MOE_IDS_I64;
  args.router_dtype = W4MOE_DTYPE_F16;
  CHECK(has(c_error(w4moe_run(layer.binding, stream, &args), W4MOE_INVALID_ARGUMENT), "router_dtype = 2"));
  CHECK(world.driver.launches().empty());
  args.router_dtype = W4MOE_DTYPE_BF16;
  c_ok(w4moe_run(layer.binding, stream, &args));
  CHECK(world.driver.launches()[0].as<RouteArgs>().id_type == IdType::i64);
  CHECK(world.driver.launches()[2].as<Fc2Args>().router_dtype == DType::bf16);
}

TEST_CASE("R09: c api: 16 threads first-use one plan: one compile a kernel, and a failed build wakes all with its text") {
  FakeWorld world;
  const OwnedEngine engine = c_engine(world);
  const OwnedPlan plan = c_plan(engine);
  world.compiler->fail_with = "the compiler's own words";
  std::atomic<int> failed{0};
  const auto build_on_threads = [&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&] {
        FakeDriver::set_current(world.context);
        if (w4moe_engine_build(engine, plan, nullptr, nullptr) != W4MOE_OK) failed += has(w4moe_last_error(), "the compiler's own words") ? 1 : 100;
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  build_on_threads();
  CHECK(failed == 16);
  CHECK(std::string(w4moe_last_error()).find("the compiler's own words") == std::string::npos);  // each thread has its own
  char text[256];
  CHECK(w4moe_engine_last_error(engine, text, sizeof(text)) > 1);
  CHECK(has(text, "the compiler's own words"));
  char cut[5];
  CHECK(w4moe_engine_last_error(engine, cut, sizeof(cut)) > sizeof(cut));
  CHECK(std::string(cut).size() == 4);

  world.compiler->fail_with.clear();
  world.compiler->compiles = 0;
  world.compiler->add(plan.handle->plan);
  failed = 0;
  build_on_threads();
  CHECK(failed == 0);
  CHECK(world.compiler->compiles == static_cast<int>(plan.handle->plan.kernels.size()));
}

TEST_CASE("c api: a frozen engine compiles nothing; handles go in any order") {
  FakeWorld world;
  auto* const engine = new w4moe_engine{must(capi::make_engine(world.options(), W4MOE_DEVICE_CURRENT, 0))};
  w4moe_plan* plan = nullptr;
  const w4moe_problem problem = c_problem();
  c_ok(w4moe_plan_create(engine, &problem, nullptr, &plan));
  world.compiler->add(plan->plan);
  CHECK(w4moe_engine_is_frozen(engine) == 0);
  CHECK(has(c_error(w4moe_engine_preload(engine, plan, nullptr, nullptr), W4MOE_NOT_PREPARED), "manifest"));
  c_ok(w4moe_engine_build(engine, plan, nullptr, nullptr));
  c_ok(w4moe_engine_freeze(engine));
  CHECK(w4moe_engine_is_frozen(engine) == 1);
  LayerMemory memory(world.driver.table(), plan->plan);
  w4moe_binding* binding = nullptr;
  c_ok(w4moe_bind(engine, plan, memory.weights.data(), memory.weights.bytes(), memory.scratch.data(), memory.scratch.bytes(), &binding));
  w4moe_engine_destroy(engine);
  w4moe_plan_destroy(plan);
  const w4moe_run_args args = c_args(memory, 2);
  c_ok(w4moe_init_scratch(binding, nullptr));
  c_ok(w4moe_run(binding, nullptr, &args));
  w4moe_binding_destroy(binding);
}
