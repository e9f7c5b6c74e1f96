// Streams, threads and contexts on a real GPU.
#include <atomic>
#include <chrono>
#include <thread>

#include "generator/compile/nvrtc_library.hpp"
#include "tests/support/device_layer.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

void sleep_in_stream(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

}  // namespace

TEST_CASE("R08: work before and after a run on a non-blocking stream is in order with it") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 16);
  const std::vector<u16> expected = layer.run(inputs);
  const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
  std::vector<u16> after(expected.size());
  for (int i = 0; i < 5; ++i) {
    gpu_must(inputs.x.fill(0));
    gpu_must(inputs.out.fill(0xff));
    const driver::DriverTable& t = *gpu.table;
    const auto bytes = static_cast<std::size_t>(inputs.out_bytes);
    gpu_must(driver::check(t, t.launch_host_func(stream.handle(), sleep_in_stream, nullptr), "cuLaunchHostFunc"));
    gpu_must(driver::check(t, t.memcpy_htod_async(reinterpret_cast<driver::DevicePtr>(inputs.x.data()), inputs.host.x.data(), bytes, stream.handle()), "cuMemcpyHtoDAsync"));
    gpu_must(engine.run(*layer.binding, stream.handle(), inputs.args));
    gpu_must(driver::check(t, t.memcpy_dtoh_async(after.data(), reinterpret_cast<driver::DevicePtr>(inputs.out.data()), bytes, stream.handle()), "cuMemcpyDtoHAsync"));
    gpu_must(stream.synchronize());
    REQUIRE(after == expected);
  }
}

TEST_CASE("R08: the per-thread and the legacy default stream serve too") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 16);
  const std::vector<u16> expected = layer.run(inputs);
  for (const driver::Stream stream : {driver::kStreamLegacy, driver::kStreamPerThread}) {
    gpu_must(inputs.out.fill(0xff));
    CHECK(layer.run(inputs, stream) == expected);
  }
}

TEST_CASE("S08: two threads on two streams with the same weights and scratch of their own: 10000 runs each, all right") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const driver::DeviceBuffer second = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, layer.plan.required_bytes()));
  const Binding other = layer.bind(second);
  gpu_must(engine.init_scratch(other, nullptr));
  std::vector<DeviceInputs> inputs[2];
  std::vector<std::vector<u16>> expected[2];
  for (int t = 0; t < 2; ++t) {
    for (const i64 tokens : {1, 5, 64, 17}) {
      SyntheticOptions options;
      options.seed = static_cast<u64>(t + 1);
      inputs[t].emplace_back(*gpu.table, layer.plan.problem, tokens, options);
      expected[t].push_back(layer.run(inputs[t].back()));
      gpu_must(inputs[t].back().out.fill(0xff));
    }
  }
  const driver::OwnedStream streams[2] = {gpu_must(driver::OwnedStream::create(*gpu.table)), gpu_must(driver::OwnedStream::create(*gpu.table))};
  std::atomic<int> failures{0};
  const auto work = [&](int t) {
    // No context is made current here: the binding knows its own.
    const Binding& binding = t == 0 ? *layer.binding : other;
    for (std::size_t i = 0; i < 10000; ++i) {
      if (!engine.run(binding, streams[t].handle(), inputs[t][i % 4].args)) ++failures;
    }
  };
  std::thread first(work, 0);
  std::thread second_thread(work, 1);
  first.join();
  second_thread.join();
  CHECK(failures == 0);
  for (int t = 0; t < 2; ++t) {
    gpu_must(streams[t].synchronize());
    for (std::size_t i = 0; i < 4; ++i) CHECK(inputs[t][i].download() == expected[t][i]);
  }
}

TEST_CASE("R01, R02: a second context on the device has its own functions; a foreign stream is refused") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const DeviceInputs inputs(*gpu.table, layer.plan.problem, 12);
  const std::vector<u16> expected = layer.run(inputs);
  driver::Context second = nullptr;
  gpu_must(driver::check(*gpu.table, gpu.table->ctx_create(&second, 0, 0), "cuCtxCreate"));
  {
    const auto unbuilt = engine.bind(layer.plan, layer.binding->weights(), layer.scratch.data(), layer.scratch.bytes());
    CHECK((!unbuilt && unbuilt.error().code == ErrorCode::not_prepared));
    const DeviceLayer other(*gpu.table, engine, gpu_problem());
    const DeviceInputs other_inputs(*gpu.table, other.plan.problem, 12);
    const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
    for (int i = 0; i < 20; ++i) {
      CHECK(other.run(other_inputs, stream.handle()) == expected);
      const Status foreign = engine.run(*layer.binding, stream.handle(), inputs.args);
      CHECK((!foreign && foreign.error().code == ErrorCode::invalid_argument));
    }
  }
  driver::Context popped = nullptr;
  gpu_must(driver::check(*gpu.table, gpu.table->ctx_pop_current(&popped), "cuCtxPopCurrent"));
  CHECK(popped == second);
  CHECK(layer.run(inputs) == expected);
  gpu_must(driver::check(*gpu.table, gpu.table->ctx_destroy(second), "cuCtxDestroy"));
  CHECK(layer.run(inputs) == expected);  // what the dead context had is no loss to this one
}

TEST_CASE("R05: after build, the first run of a kernel does not wait for another kernel that is still running") {
  W4MOE_NEED_GPU(gpu);
  const driver::DriverTable& t = *gpu.table;
  const auto nvrtc = NvrtcLibrary::load();
  if (!nvrtc) W4MOE_SKIP("the spinning kernel needs NVRTC: " + nvrtc.error().message);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(t, engine, gpu_problem());
  const DeviceInputs inputs(t, layer.plan.problem, 8);

  const auto spin = (*nvrtc)->compile("extern \"C\" __global__ void spin(volatile int* flag) { while (*flag == 0) {} }", "spin.cu", {},
                                      {"-arch=" + std::string(to_string(layer.plan.device.arch))});
  INFO(spin.log);
  REQUIRE_FALSE(spin.cubin.empty());
  driver::Library library = nullptr;
  driver::Kernel kernel = nullptr;
  driver::Function function = nullptr;
  gpu_must(driver::check(t, t.library_load_data(&library, spin.cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData"));
  gpu_must(driver::check(t, t.library_get_kernel(&kernel, library, "spin"), "cuLibraryGetKernel"));
  gpu_must(driver::check(t, t.kernel_get_function(&function, kernel), "cuKernelGetFunction"));
  void* memory = nullptr;
  gpu_must(driver::check(t, t.mem_host_alloc(&memory, 4, 2 /* mapped */), "cuMemHostAlloc"));
  auto* flag = static_cast<volatile int*>(memory);
  *flag = 0;

  const driver::OwnedStream busy = gpu_must(driver::OwnedStream::create(t));
  const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(t));
  driver::LaunchConfig config;
  config.stream = busy.handle();
  void* args[] = {&memory};
  gpu_must(driver::check(t, t.launch_kernel_ex(&config, function, args, nullptr), "cuLaunchKernelEx"));

  // Should the run wait for the spinning kernel after all, this ends the wait, and the time tells.
  std::atomic<bool> done{false};
  std::thread release([&] {
    for (int i = 0; i < 100 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    *flag = 1;
  });
  const Status status = engine.run(*layer.binding, stream.handle(), inputs.args);
  const driver::Code waited = t.stream_synchronize(stream.handle());
  const bool still_spinning = t.stream_query(busy.handle()) == driver::kNotReady;
  done = true;
  release.join();
  gpu_must(busy.synchronize());
  gpu_must(status);
  CHECK(waited == driver::kSuccess);
  CHECK(still_spinning);
  t.mem_free_host(memory);
  t.library_unload(library);
}
