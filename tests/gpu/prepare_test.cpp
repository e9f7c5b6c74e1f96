// W5: packing on the GPU gives the bytes of the CPU packer, in memory of exactly the stated sizes, and keeps nothing of the source.
#include <algorithm>
#include <cstdio>

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "tests/support/device_layer.hpp"
#include "tests/support/prepare_cases.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

constexpr i64 kGuardBytes = 4096;

/// Moves every tensor of a source into device memory.
std::vector<driver::DeviceBuffer> move_to_device(const driver::DriverTable& table, SourceWeights& source) {
  std::vector<driver::DeviceBuffer> memory;
  for (SourceMatrix* matrix : {&source.gate_up, &source.gate, &source.up, &source.down}) {
    for (SourceOperand* operand : {&matrix->codes, &matrix->scales, &matrix->zeros, &matrix->bias}) {
      for (SourceTensor& tensor : *operand) {
        i64 bytes = source_type_bytes(tensor.type);
        for (const i64 dim : tensor.shape) bytes *= dim;
        memory.push_back(gpu_must(driver::DeviceBuffer::allocate(table, bytes)));
        gpu_must(memory.back().upload(tensor.data, bytes));
        tensor.data = memory.back().data();
      }
    }
  }
  source.on_device = true;
  return memory;
}

/// Destination and workspace of exactly the stated sizes, each with a guard behind it.
struct PrepareMemory {
  PrepareMemory(const driver::DriverTable& table, const Plan& plan, const SourceWeights& source)
      : dest_bytes(plan.prepared_weight_bytes()), workspace_bytes(gpu_must(prepare_workspace_bytes(plan.problem, source))),
        dest(gpu_must(driver::DeviceBuffer::allocate(table, dest_bytes + kGuardBytes))),
        workspace(gpu_must(driver::DeviceBuffer::allocate(table, workspace_bytes + kGuardBytes))) {
    gpu_must(dest.fill(0xa5));
    gpu_must(workspace.fill(0xa5));
  }

  w4moe::Result<PreparedWeights> prepare(Engine& engine, const Plan& plan, const SourceWeights& source, driver::Stream stream = nullptr, const PackOptions& options = {}) const {
    return engine.prepare(plan, source, dest.data(), dest_bytes, workspace.data(), workspace_bytes, stream, options);
  }

  std::vector<std::byte> prepared() const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(dest_bytes));
    gpu_must(dest.download(bytes.data(), dest_bytes));
    return bytes;
  }

  bool guards_are_whole() const {
    for (const driver::DeviceBuffer* buffer : {&dest, &workspace}) {
      std::vector<u8> guard(static_cast<std::size_t>(kGuardBytes));
      gpu_must(buffer->download(guard.data(), kGuardBytes, buffer->bytes() - kGuardBytes));
      if (std::any_of(guard.begin(), guard.end(), [](u8 byte) { return byte != 0xa5; })) return false;
    }
    return true;
  }

  i64 dest_bytes, workspace_bytes;
  driver::DeviceBuffer dest, workspace;
};

}  // namespace

TEST_CASE("W1 W2 W3 W4 W5 W6: prepare on the GPU gives the CPU packer's bytes for every format and checkpoint layout", "[sanitize]") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  for (const PrepareCase& c : prepare_cases()) {
    const Problem problem = c.problem();
    SyntheticLayer layer = make_layer(problem, c.source);
    const std::vector<std::byte> expected = packed(problem, layer.source);
    const Plan plan = gpu_must(make_plan(problem, gpu_must(engine.device())));
    INFO(c.what);

    const PrepareMemory from_host(*gpu.table, plan, layer.source);
    gpu_must(from_host.prepare(engine, plan, layer.source));
    CHECK(first_difference(from_host.prepared(), expected) == -1);
    CHECK(from_host.guards_are_whole());

    const std::vector<driver::DeviceBuffer> tensors = move_to_device(*gpu.table, layer.source);
    const PrepareMemory from_device(*gpu.table, plan, layer.source);
    CHECK(from_device.workspace_bytes < from_host.workspace_bytes);
    gpu_must(from_device.prepare(engine, plan, layer.source));
    CHECK(first_difference(from_device.prepared(), expected) == -1);
    CHECK(from_device.guards_are_whole());

    gpu_must(from_device.dest.fill(0x11));
    PackOptions watched;
    std::vector<i64> done;
    watched.on_expert_done = [&](i64 expert) { done.push_back(expert); };
    const driver::OwnedStream stream = gpu_must(driver::OwnedStream::create(*gpu.table));
    gpu_must(from_device.prepare(engine, plan, layer.source, stream.handle(), watched));
    CHECK(first_difference(from_device.prepared(), expected) == -1);
    CHECK(static_cast<i64>(done.size()) == c.experts);
  }
}

TEST_CASE("S14: after prepare the device holds the prepared bytes alone, and the layer runs when its source has been overwritten") {
  W4MOE_NEED_GPU(gpu);
  const driver::DriverTable& table = *gpu.table;
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  Problem problem = gpu_problem();
  problem.shape = Shape{2048, 1024, 64, 4, 64};  // 200 MB, which shows in what the driver says is free
  problem.format = kNvfp4;
  const Plan plan = gpu_must(make_plan(problem, gpu_must(engine.device())));
  gpu_must(engine.build(plan));
  SyntheticLayer layer = make_layer(problem);
  {
    // The packing kernels are loaded by the first call, and the driver's own memory with them.
    SyntheticLayer other = make_layer(small_problem(64, 64, 2, kNvfp4));
    const Plan other_plan = gpu_must(make_plan(small_problem(64, 64, 2, kNvfp4), gpu_must(engine.device())));
    const PrepareMemory memory(table, other_plan, other.source);
    gpu_must(memory.prepare(engine, other_plan, other.source));
  }
  const auto free_bytes = [&] {
    std::size_t free = 0;
    std::size_t total = 0;
    gpu_must(driver::check(table, table.ctx_synchronize(), "cuCtxSynchronize"));
    gpu_must(driver::check(table, table.mem_get_info(&free, &total), "cuMemGetInfo"));
    return static_cast<i64>(free);
  };
  std::optional<std::vector<driver::DeviceBuffer>> tensors(move_to_device(table, layer.source));
  const i64 before = free_bytes();
  const driver::DeviceBuffer dest = gpu_must(driver::DeviceBuffer::allocate(table, plan.prepared_weight_bytes()));
  {
    const i64 workspace_bytes = gpu_must(prepare_workspace_bytes(problem, layer.source));
    CHECK(workspace_bytes <= 64 * 48 + 256);
    const driver::DeviceBuffer workspace = gpu_must(driver::DeviceBuffer::allocate(table, workspace_bytes));
    gpu_must(engine.prepare(plan, layer.source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), nullptr));
  }
  const i64 kept = before - free_bytes();
  INFO("kept " << kept << " bytes for " << plan.prepared_weight_bytes() << " of prepared weights");
  CHECK(static_cast<double>(kept) <= 1.01 * static_cast<double>(plan.prepared_weight_bytes()) + (4 << 20));  // the driver hands out 2 MiB pages

  const DeviceInputs inputs(table, problem, 33);
  const driver::DeviceBuffer scratch = gpu_must(driver::DeviceBuffer::allocate(table, plan.required_bytes()));
  const Binding binding = gpu_must(engine.bind(plan, gpu_must(engine.adopt(dest.data(), dest.bytes())), scratch.data(), scratch.bytes()));
  gpu_must(engine.init_scratch(binding, nullptr));
  const auto run = [&] {
    gpu_must(inputs.out.fill(0xff));
    gpu_must(engine.run(binding, nullptr, inputs.args));
    gpu_must(driver::check(table, table.ctx_synchronize(), "cuCtxSynchronize"));
    return inputs.download();
  };
  const std::vector<u16> out = run();
  for (const driver::DeviceBuffer& tensor : *tensors) gpu_must(tensor.fill(0xee));
  CHECK(run() == out);
  tensors.reset();
  CHECK(run() == out);
  SyntheticLayer again = make_layer(problem);
  std::vector<double> exact(out.size());
  ReferenceOptions options;
  options.threads = 0;
  gpu_must(reference_fp64(problem, again.source, inputs.host.inputs, exact, options));
  CHECK(compare_outputs(DType::bf16, out, exact, 2048).worst_row_rmse <= contract_relative_rmse(DType::bf16));
}

TEST_CASE("N19, W1: NaN scales are refused by place, or passed on to the outputs that use them; a wide spread asks for the wide format") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const Problem problem = small_problem(128, 96, 3, kMxfp4);
  SyntheticLayer layer = make_layer(problem);
  const Plan plan = gpu_must(make_plan(problem, gpu_must(engine.device())));
  const PrepareMemory memory(*gpu.table, plan, layer.source);
  u8* const scale = const_cast<u8*>(static_cast<const u8*>(layer.source.down.scales[0].data)) + (2 * 128 + 77) * 3 + 1;  // expert 2, row 77, group 1
  const u8 sound = *scale;

  *scale = 255;
  const auto refused = memory.prepare(engine, plan, layer.source);
  REQUIRE_FALSE(refused.ok());
  for (const char* part : {"expert 2", "down", "row 77", "group 1"}) CHECK(refused.error().message.find(part) != std::string::npos);
  CHECK_FALSE(engine.adopt(memory.dest.data(), memory.dest_bytes).ok());

  PackOptions passed_on;
  passed_on.allow_nan_scales = true;
  gpu_must(memory.prepare(engine, plan, layer.source, nullptr, passed_on));
  CHECK(first_difference(memory.prepared(), packed(problem, layer.source, passed_on)) == -1);

  *scale = 254;
  const auto spread = memory.prepare(engine, plan, layer.source);
  REQUIRE_FALSE(spread.ok());
  CHECK(spread.error().message.find("mxfp4:wide") != std::string::npos);

  *scale = sound;
  gpu_must(memory.prepare(engine, plan, layer.source));
  CHECK(first_difference(memory.prepared(), packed(problem, layer.source)) == -1);
  CHECK(memory.guards_are_whole());
}
