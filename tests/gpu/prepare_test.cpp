// W5: packing on the GPU gives the bytes of the CPU packer.
#include <cstring>

#include "tests/support/device_layer.hpp"
#include "tests/support/layers.hpp"

namespace w4moe::test {
namespace {

TEST_CASE("W5: prepare on the GPU, every kind of format, host tensors and device tensors") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  for (const QuantFormat& format : {kMxfp4, kMxfp4Wide, kNvfp4, int4_format(32, true), int4_format(128), int4_format(kWholeRow, true, ScaleType::f16)}) {
    Problem problem = small_problem(384, format.is_nvfp4() ? 176 : format.group_size == 128 ? 256 : 160, 5, format);
    problem.has_bias = true;
    SyntheticOptions options;
    options.gate_up_order = GateUpOrder::interleaved;
    options.scale_layout = format.is_nvfp4() ? ScaleLayout::swizzled_128x4 : ScaleLayout::row_major;
    options.zero_order = ZeroOrder::nibbles_along_rows;
    options.mx_first_byte = 120;
    options.mx_last_byte = 140;  // a window of its own
    SyntheticLayer layer = make_layer(problem, options);
    const std::vector<std::byte> expected = packed(problem, layer.source);
    const Plan plan = gpu_must(make_plan(problem, gpu_must(engine.device())));
    INFO(to_string(format));

    const auto prepare = [&](const SourceWeights& source) {
      const driver::DeviceBuffer dest = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, plan.prepared_weight_bytes()));
      const driver::DeviceBuffer workspace = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, gpu_must(prepare_workspace_bytes(problem, source))));
      gpu_must(dest.fill(0xa5));
      gpu_must(engine.prepare(plan, source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), nullptr));
      std::vector<std::byte> bytes(static_cast<std::size_t>(dest.bytes()));
      gpu_must(dest.download(bytes.data(), dest.bytes()));
      return bytes;
    };
    CHECK(prepare(layer.source) == expected);

    std::vector<driver::DeviceBuffer> memory;
    for (SourceMatrix* matrix : {&layer.source.gate_up, &layer.source.down}) {
      for (SourceOperand* operand : {&matrix->codes, &matrix->scales, &matrix->zeros, &matrix->bias}) {
        for (SourceTensor& tensor : *operand) {
          i64 bytes = source_type_bytes(tensor.type);
          for (const i64 dim : tensor.shape) bytes *= dim;
          memory.push_back(gpu_must(driver::DeviceBuffer::allocate(*gpu.table, bytes)));
          gpu_must(memory.back().upload(tensor.data, bytes));
          tensor.data = memory.back().data();
        }
      }
    }
    layer.source.on_device = true;
    CHECK(prepare(layer.source) == expected);
  }
}

}  // namespace
}  // namespace w4moe::test
