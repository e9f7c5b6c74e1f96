// A made-up layer on a real GPU: packed weights, scratch, inputs and output in device memory, and the way there and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include "runtime/driver/device_memory.hpp"
#include "runtime/reference/synthetic.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"
#include "w4moe/engine.hpp"
#include "w4moe/weights.hpp"

namespace w4moe::test {

/// A value, or the test fails with the error's message.
template <class T>
T gpu_must(w4moe::Result<T> result) {
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.ok());
  return std::move(*result);
}
inline void gpu_must(const Status& status) {
  INFO((status ? std::string() : status.error().message));
  REQUIRE(status.ok());
}

/// The driver and device 0's primary context, current on this thread. `why` says why there is none.
struct Gpu {
  const driver::DriverTable* table = nullptr;
  std::optional<driver::PrimaryContext> context;
  std::string why;

  static Gpu open() {
    Gpu gpu;
    w4moe::Result<const driver::DriverTable*> table = driver::system_driver();
    if (!table) {
      gpu.why = table.error().message;
      return gpu;
    }
    w4moe::Result<driver::PrimaryContext> context = driver::PrimaryContext::open(**table, 0);
    if (!context) {
      gpu.why = context.error().message;
      return gpu;
    }
    gpu.table = *table;
    gpu.context.emplace(std::move(*context));
    return gpu;
  }
  bool ok() const { return context.has_value(); }
};

/// Ends the test as skipped where there is no GPU; declares `gpu`.
#define W4MOE_NEED_GPU(gpu)                            \
  ::w4moe::test::Gpu gpu = ::w4moe::test::Gpu::open(); \
  if (!gpu.ok()) W4MOE_SKIP(gpu.why)

/// Options whose kernels are kept in one folder for all test processes, so that each is compiled once.
inline EngineOptions gpu_engine_options() {
  EngineOptions options;
  if (std::getenv("W4MOE_CACHE_DIR") == nullptr) {
    options.kernels.cache_dir = (std::filesystem::temp_directory_path() / ("w4moe-gpu-tests-" + std::to_string(::geteuid()))).string();
  }
  return options;
}

/// The layer that API tests run: small enough that its kernels compile in a second or two.
inline Problem gpu_problem() {
  Problem p;
  p.name = "gpu-api";
  p.shape = Shape{256, 128, 8, 2, 64};
  p.format = kMxfp4;
  p.params = default_params(p.activation);
  return p;
}

/// Tokens of one run in device memory, as make_inputs makes them, and room for the output.
struct DeviceInputs {
  DeviceInputs(const driver::DriverTable& table, const Problem& problem, i64 tokens, const SyntheticOptions& options = {}, IdType id_type = IdType::i32,
               DType router_dtype = DType::f32)
      : host(make_inputs(problem, tokens, options, id_type, router_dtype)) {
    const MoeInputs& in = host.inputs;
    const Shape& shape = problem.shape;
    out_bytes = tokens * shape.hidden * 2;
    x = gpu_must(driver::DeviceBuffer::allocate(table, out_bytes));
    out = gpu_must(driver::DeviceBuffer::allocate(table, out_bytes));
    ids = gpu_must(driver::DeviceBuffer::allocate(table, tokens * shape.topk * id_type_bytes(id_type)));
    router = gpu_must(driver::DeviceBuffer::allocate(table, tokens * shape.topk * dtype_bytes(router_dtype)));
    gpu_must(x.upload(in.x, out_bytes));
    gpu_must(ids.upload(in.ids, ids.bytes()));
    gpu_must(router.upload(in.router_weights, router.bytes()));
    gpu_must(out.fill(0xff));
    args.tokens = tokens;
    args.x = x.data();
    args.ids = ids.data();
    args.id_type = id_type;
    args.router_weights = router.data();
    args.router_dtype = router_dtype;
    args.out = out.data();
  }

  /// Bits of the output; the stream has been waited for.
  std::vector<u16> download() const {
    std::vector<u16> bits(static_cast<std::size_t>(out_bytes / 2));
    gpu_must(out.download(bits.data(), out_bytes));
    return bits;
  }

  SyntheticInputs host;
  i64 out_bytes = 0;
  driver::DeviceBuffer x, ids, router, out;
  RunArgs args;
};

/// A planned, built and packed layer with scratch of exactly the planned size (and `extra_scratch` bytes beyond).
struct DeviceLayer {
  DeviceLayer(const driver::DriverTable& driver_table, Engine& on, const Problem& problem, const PlanOptions& plan_options = {},
              const SyntheticOptions& synthetic = {}, i64 extra_scratch = 0)
      : table(driver_table), engine(on), options(synthetic), plan(gpu_must(make_plan(problem, gpu_must(on.device()), plan_options))), host(make_layer(problem, synthetic)) {
    gpu_must(engine.build(plan));
    std::vector<std::byte> packed(static_cast<std::size_t>(plan.prepared_weight_bytes()));
    gpu_must(pack_on_cpu(problem, host.source, packed));
    weights = gpu_must(driver::DeviceBuffer::allocate(table, static_cast<i64>(packed.size())));
    gpu_must(weights.upload(packed.data(), weights.bytes()));
    scratch = gpu_must(driver::DeviceBuffer::allocate(table, plan.required_bytes() + extra_scratch));
    gpu_must(scratch.fill(0xff));
    binding.emplace(bind(scratch));
    gpu_must(engine.init_scratch(*binding, nullptr));
    gpu_must(driver::check(table, table.ctx_synchronize(), "cuCtxSynchronize"));
  }

  Binding bind(const driver::DeviceBuffer& memory) const {
    const PreparedWeights prepared = gpu_must(engine.adopt(weights.data(), weights.bytes()));
    return gpu_must(engine.bind(plan, prepared, memory.data(), memory.bytes()));
  }

  /// Runs on the stream, waits, and returns the output's bits.
  std::vector<u16> run(const DeviceInputs& inputs, driver::Stream stream = nullptr) const {
    gpu_must(engine.run(*binding, stream, inputs.args));
    gpu_must(driver::check(table, table.stream_synchronize(stream), "cuStreamSynchronize"));
    return inputs.download();
  }

  const driver::DriverTable& table;
  Engine& engine;
  SyntheticOptions options;
  Plan plan;
  SyntheticLayer host;
  driver::DeviceBuffer weights, scratch;
  std::optional<Binding> binding;
};

}  // namespace w4moe::test
