// W5: Engine::prepare, with the fake driver playing the two kernels by the functions they are made of. (The kernel sources
// themselves run in the lock-step suite, and on a GPU in tests/gpu.)
#include <cstring>

#include "packing/pack_args.h"
#include "tests/support/layers.hpp"
#include "tests/unit/runtime/small_plan.hpp"

namespace w4moe::test {
namespace {

/// What the kernels do, thread by thread.
void play(const FakeLaunch& launch, const QuantFormat& format) {
  for (i64 expert = 0; expert < launch.grid_y; ++expert) {
    const i64 threads = static_cast<i64>(launch.grid_x) * launch.block_x;
    if (launch.kernel == "w4moe_scan") {
      const ScanArgs& args = launch.as<ScanArgs>();
      const SourceView view = source_of_expert(args.view, expert);
      const i64 groups = format.groups(view.k);
      ScanResult& result = args.scans[expert * kProjections + static_cast<i64>(args.projection)];
      REQUIRE(threads >= scan_items(format, view));
      for (i64 item = 0; item < scan_items(format, view); ++item) scan_block(format, view, item / groups, item % groups, result);
    } else {
      REQUIRE(launch.kernel == "w4moe_pack");
      const PackArgs& args = launch.as<PackArgs>();
      const MatrixLayout matrix{format, args.rows, args.k, 1};
      const SourceView low = source_of_expert(args.low, expert);
      const SourceView high = source_of_expert(args.high, expert);
      const ScanResult* scans = args.scans + expert * kProjections;
      REQUIRE(threads >= pack_items(matrix));
      for (i64 item = 0; item < pack_items(matrix); ++item) {
        const i64 strip = item / kLanes / matrix.k_units();
        const i64 unit_k = item / kLanes % matrix.k_units();
        PackRow rows[2];
        strip_rows(args.gated_fc1 != 0, low, high, mx_window(scans[static_cast<i64>(args.low_projection)]).base,
                   mx_window(scans[static_cast<i64>(args.high_projection)]).base, strip, item % kLanes / 4, rows);
        pack_unit_lane(format, rows, unit_k, item % kLanes, args.units + matrix.unit_offset_bytes(expert, strip, unit_k));
      }
    }
  }
}

struct Prepared {
  std::vector<std::byte> bytes;
  int launches = 0;
  std::vector<i64> done;
};

/// Runs Engine::prepare in memory of exactly the stated sizes.
Prepared prepare(const Problem& problem, const SourceWeights& source, bool wants_done = false) {
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = plan_of(problem);
  world.driver.on_launch = [&](const FakeLaunch& launch) { play(launch, problem.format); };
  const i64 workspace_bytes = must(prepare_workspace_bytes(problem, source));
  const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(world.driver.table(), plan.prepared_weight_bytes()));
  const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(world.driver.table(), workspace_bytes));
  const std::size_t allocated = world.driver.allocated_bytes();
  Prepared result;
  PackOptions options;
  options.allow_nan_scales = true;
  if (wants_done) options.on_expert_done = [&](i64 expert) { result.done.push_back(expert); };
  const PreparedWeights weights = must(engine.prepare(plan, source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), nullptr, options));
  CHECK(world.driver.allocated_bytes() == allocated);
  CHECK(weights.header.layout_id == plan.layout());
  CHECK(engine.adopt(dest.data(), dest.bytes()).ok());
  result.bytes.resize(static_cast<std::size_t>(dest.bytes()));
  must(dest.download(result.bytes.data(), dest.bytes()));
  result.launches = world.driver.count("launch_kernel_ex");
  return result;
}

std::vector<std::byte> on_cpu(const Problem& problem, const SourceWeights& source) {
  PackOptions options;
  options.allow_nan_scales = true;
  return packed(problem, source, options);
}

TEST_CASE("W5: prepare gives the bytes of the CPU packer, from host and from device tensors, stacked and separate") {
  for (const QuantFormat& format : {kMxfp4, kNvfp4, int4_format(32, true)}) {
    for (const bool per_expert : {false, true}) {
      Problem problem = test::small_problem(96, format.is_nvfp4() ? 80 : 96, 3, format);
      problem.has_bias = true;
      SyntheticOptions options;
      options.per_expert_tensors = per_expert;
      options.gate_up_order = per_expert ? GateUpOrder::separate : GateUpOrder::interleaved;
      options.scale_layout = format.is_nvfp4() ? ScaleLayout::swizzled_128x4 : ScaleLayout::row_major;
      options.zero_order = ZeroOrder::nibbles_along_rows;
      SyntheticLayer layer = make_layer(problem, options);
      const std::vector<std::byte> expected = on_cpu(problem, layer.source);
      INFO(to_string(format) << " per expert " << per_expert);
      const Prepared host = prepare(problem, layer.source);
      CHECK(host.bytes == expected);
      CHECK(host.launches == 3 * (3 + 2));
      layer.source.on_device = true;  // the fake driver's device memory is the host's
      const Prepared device = prepare(problem, layer.source);
      CHECK(device.bytes == expected);
      CHECK(device.launches == (per_expert ? 3 : 1) * (3 + 2));
      const Prepared watched = prepare(problem, layer.source, true);
      CHECK(watched.bytes == expected);
      CHECK(watched.done == std::vector<i64>{0, 1, 2});
    }
  }
}

TEST_CASE("W5: one expert's tensors are all the room that host tensors take, and none for device tensors") {
  const Problem problem = test::small_problem(96, 96, 5, kMxfp4);
  SyntheticLayer layer = make_layer(problem);
  const i64 expert = 3 * 96 * 96 / 2 + 3 * 96 * 3;
  CHECK(must(prepare_workspace_bytes(problem, layer.source)) <= 256 + expert + 4 * 256);
  layer.source.on_device = true;
  CHECK(must(prepare_workspace_bytes(problem, layer.source)) == 256);
  layer.source.down.codes.clear();
  CHECK(error_of(prepare_workspace_bytes(problem, layer.source), ErrorCode::invalid_argument).find("down.codes") != std::string::npos);
}

TEST_CASE("S14: host tensors may be overwritten as soon as their expert is done") {
  const Problem problem = test::small_problem(64, 64, 3, kNvfp4);
  SyntheticOptions made;
  made.per_expert_tensors = true;
  made.gate_up_order = GateUpOrder::separate;
  const std::vector<std::byte> expected = on_cpu(problem, make_layer(problem, made).source);
  SyntheticLayer layer = make_layer(problem, made);
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = plan_of(problem);
  world.driver.on_launch = [&](const FakeLaunch& launch) { play(launch, problem.format); };
  const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(world.driver.table(), plan.prepared_weight_bytes()));
  const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(world.driver.table(), must(prepare_workspace_bytes(problem, layer.source))));
  PackOptions options;
  options.on_expert_done = [&](i64 expert) {
    for (const SourceMatrix* matrix : {&layer.source.gate, &layer.source.up, &layer.source.down}) {
      for (const SourceOperand* operand : {&matrix->codes, &matrix->scales}) {
        const SourceTensor& tensor = (*operand)[static_cast<std::size_t>(expert)];
        std::memset(const_cast<void*>(tensor.data), 0xee, static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
      }
    }
  };
  must(engine.prepare(plan, layer.source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), nullptr, options));
  std::vector<std::byte> bytes(static_cast<std::size_t>(dest.bytes()));
  must(dest.download(bytes.data(), dest.bytes()));
  CHECK(bytes == expected);
}

TEST_CASE("prepare refuses what it must before or after the scan, and leaves no valid header behind") {
  const Problem problem = test::small_problem(64, 64, 2, kMxfp4);
  SyntheticLayer layer = make_layer(problem);
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = plan_of(problem);
  world.driver.on_launch = [&](const FakeLaunch& launch) { play(launch, problem.format); };
  const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(world.driver.table(), plan.prepared_weight_bytes()));
  const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(world.driver.table(), must(prepare_workspace_bytes(problem, layer.source))));
  const auto attempt = [&](void* to, i64 to_bytes, i64 workspace_bytes) {
    return engine.prepare(plan, layer.source, to, to_bytes, workspace.data(), workspace_bytes, nullptr);
  };
  must(attempt(dest.data(), dest.bytes(), workspace.bytes()));
  CHECK(error_of(attempt(dest.data(), dest.bytes() - 1, workspace.bytes()), ErrorCode::invalid_argument).find("destination") != std::string::npos);
  CHECK(error_of(attempt(static_cast<std::byte*>(dest.data()) + 16, dest.bytes(), workspace.bytes()), ErrorCode::invalid_argument).find("multiple of 256") != std::string::npos);
  CHECK(error_of(attempt(dest.data(), dest.bytes(), workspace.bytes() - 1), ErrorCode::invalid_argument).find("workspace") != std::string::npos);
  CHECK(engine.adopt(dest.data(), dest.bytes()).ok());

  const_cast<u8*>(static_cast<const u8*>(layer.source.down.scales[0].data))[64 * 2 + 5] = 255;  // expert 1, row 2, group 1
  const std::string nan = error_of(attempt(dest.data(), dest.bytes(), workspace.bytes()), ErrorCode::invalid_argument);
  for (const char* part : {"expert 1", "down", "row 2", "group 1"}) CHECK(nan.find(part) != std::string::npos);
  CHECK_FALSE(engine.adopt(dest.data(), dest.bytes()).ok());

  const_cast<u8*>(static_cast<const u8*>(layer.source.down.scales[0].data))[64 * 2 + 5] = 254;
  CHECK(error_of(attempt(dest.data(), dest.bytes(), workspace.bytes()), ErrorCode::unsupported).find("mxfp4:wide") != std::string::npos);

  const driver::Stream stream = world.driver.make_stream();
  must(driver::check(world.driver.table(), world.driver.table().stream_begin_capture(stream, driver::CaptureMode::relaxed), "capture"));
  error_of(engine.prepare(plan, layer.source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), stream), ErrorCode::not_prepared);
}

}  // namespace
}  // namespace w4moe::test
