// W5: Engine::prepare, with the fake driver playing the two kernels by the functions they are made of. (The kernel sources
// themselves run in the lock-step suite, and on a GPU in tests/gpu.)
#include <algorithm>
#include <cstring>

#include "packing/pack_args.h"
#include "runtime/weights/packing_variants.hpp"
#include "tests/support/prepare_cases.hpp"
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

/// The fake compiler knows the packing kernels of a plan's format, and the fake driver plays them.
void teach(FakeWorld& world, const Plan& plan) {
  for (const Variant& variant : packing_variants(plan.problem.format, plan.device.arch)) world.compiler->add(variant);
  world.driver.on_launch = [format = plan.problem.format](const FakeLaunch& launch) { play(launch, format); };
}

struct Prepared {
  std::vector<std::byte> bytes;
  int launches = 0;
  std::vector<i64> done;
};

constexpr i64 kGuardBytes = 512;

bool guard_is_whole(const driver::DeviceBuffer& buffer) {
  std::vector<u8> guard(kGuardBytes);
  must(buffer.download(guard.data(), kGuardBytes, buffer.bytes() - kGuardBytes));
  return std::all_of(guard.begin(), guard.end(), [](u8 byte) { return byte == 0x5a; });
}

/// Runs Engine::prepare in memory of exactly the stated sizes, with a guard behind each.
Prepared prepare(const Problem& problem, const SourceWeights& source, bool wants_done = false) {
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = plan_of(problem);
  teach(world, plan);
  const i64 workspace_bytes = must(prepare_workspace_bytes(problem, source));
  const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(world.driver.table(), plan.prepared_weight_bytes() + kGuardBytes));
  const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(world.driver.table(), workspace_bytes + kGuardBytes));
  must(dest.fill(0x5a));
  must(workspace.fill(0x5a));
  const std::size_t allocated = world.driver.allocated_bytes();
  Prepared result;
  PackOptions options;
  options.allow_nan_scales = true;
  if (wants_done) options.on_expert_done = [&](i64 expert) { result.done.push_back(expert); };
  const PreparedWeights weights =
      must(engine.prepare(plan, source, dest.data(), plan.prepared_weight_bytes(), workspace.data(), workspace_bytes, nullptr, options));
  CHECK(guard_is_whole(dest));
  CHECK(guard_is_whole(workspace));
  CHECK(world.driver.allocated_bytes() == allocated);
  CHECK(weights.header.layout_id == plan.layout());
  CHECK(engine.adopt(dest.data(), dest.bytes()).ok());
  result.bytes.resize(static_cast<std::size_t>(plan.prepared_weight_bytes()));
  must(dest.download(result.bytes.data(), plan.prepared_weight_bytes()));
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
      CHECK(first_difference(host.bytes, expected) == -1);
      CHECK(host.launches == 3 * (3 + 2));
      layer.source.on_device = true;  // the fake driver's device memory is the host's
      const Prepared device = prepare(problem, layer.source);
      CHECK(first_difference(device.bytes, expected) == -1);
      CHECK(device.launches == (per_expert ? 3 : 1) * (3 + 2));
      const Prepared watched = prepare(problem, layer.source, true);
      CHECK(first_difference(watched.bytes, expected) == -1);
      CHECK(watched.done == std::vector<i64>{0, 1, 2});
    }
  }
}

TEST_CASE("W1 W2 W3 W4 W5 W6: prepare gives the CPU packer's bytes for every format and checkpoint layout") {
  for (const PrepareCase& c : prepare_cases()) {
    const Problem problem = c.problem();
    SyntheticLayer layer = make_layer(problem, c.source);
    const std::vector<std::byte> expected = on_cpu(problem, layer.source);
    INFO(c.what);
    CHECK(first_difference(prepare(problem, layer.source).bytes, expected) == -1);
    layer.source.on_device = true;
    CHECK(first_difference(prepare(problem, layer.source).bytes, expected) == -1);
    CHECK(static_cast<i64>(prepare(problem, layer.source, true).done.size()) == c.experts);
  }
}

TEST_CASE("W5: prepare takes strided tensors: a tensor-parallel shard from the whole layer's memory") {
  const Problem whole = test::small_problem(96, 128, 3, kMxfp4);
  const SyntheticLayer layer = make_layer(whole);
  Problem shard = whole;
  shard.shape.intermediate = 64;
  SourceWeights source = shard_of(whole, layer.source, 1, 2);
  const std::vector<std::byte> expected = on_cpu(shard, source);
  CHECK(first_difference(prepare(shard, source).bytes, expected) == -1);
  source.on_device = true;
  CHECK(first_difference(prepare(shard, source).bytes, expected) == -1);
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
  teach(world, plan);
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
  CHECK(first_difference(bytes, expected) == -1);
}

TEST_CASE("prepare refuses what it must before or after the scan, and leaves no valid header behind") {
  const Problem problem = test::small_problem(64, 64, 2, kMxfp4);
  SyntheticLayer layer = make_layer(problem);
  FakeWorld world;
  Engine engine = world.engine();
  const Plan plan = plan_of(problem);
  teach(world, plan);
  const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(world.driver.table(), plan.prepared_weight_bytes()));
  const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(world.driver.table(), must(prepare_workspace_bytes(problem, layer.source))));
  const auto attempt = [&](void* to, i64 to_bytes, i64 workspace_bytes) {
    return engine.prepare(plan, layer.source, to, to_bytes, workspace.data(), workspace_bytes, nullptr);
  };
  must(attempt(dest.data(), dest.bytes(), workspace.bytes()));
  CHECK(error_of(attempt(dest.data(), dest.bytes() - 1, workspace.bytes()), ErrorCode::invalid_argument).find("destination") != std::string::npos);
  CHECK(error_of(attempt(static_cast<std::byte*>(dest.data()) + 16, dest.bytes(), workspace.bytes()), ErrorCode::invalid_argument).find("multiple of 256") != std::string::npos);
  CHECK(error_of(attempt(dest.data(), dest.bytes(), workspace.bytes() - 1), ErrorCode::invalid_argument).find("workspace") != std::string::npos);
  CHECK(error_of(engine.prepare(plan, layer.source, dest.data(), dest.bytes(), dest.data(), dest.bytes(), nullptr), ErrorCode::invalid_argument).find("overlap") != std::string::npos);
  CHECK(engine.adopt(dest.data(), dest.bytes()).ok());

  const_cast<u8*>(static_cast<const u8*>(layer.source.down.scales[0].data))[64 * 2 + 5] = 255;  // expert 1, row 2, group 1
  const std::string nan = error_of(attempt(dest.data(), dest.bytes(), workspace.bytes()), ErrorCode::invalid_argument);
  for (const char* part : {"expert 1", "down", "row 2", "group 1"}) CHECK(nan.find(part) != std::string::npos);
  CHECK_FALSE(engine.adopt(dest.data(), dest.bytes()).ok());

  const_cast<u8*>(static_cast<const u8*>(layer.source.down.scales[0].data))[64 * 2 + 5] = 254;
  CHECK(error_of(attempt(dest.data(), dest.bytes(), workspace.bytes()), ErrorCode::unsupported).find("mxfp4:wide") != std::string::npos);

  const int compiled = world.compiler->compiles;
  const std::string other = error_of(engine.prepare(plan_of(problem, {}, Arch::sm_120a), layer.source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), nullptr), ErrorCode::unsupported);
  CHECK(other.find("sm_120a") != std::string::npos);
  CHECK(world.compiler->compiles == compiled);

  const driver::Stream stream = world.driver.make_stream();
  must(driver::check(world.driver.table(), world.driver.table().stream_begin_capture(stream, driver::CaptureMode::relaxed), "capture"));
  error_of(engine.prepare(plan, layer.source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), stream), ErrorCode::not_prepared);
}

TEST_CASE("prepare without a compiler: the packing kernels come from the cache, or the message says how to ship them") {
  const Problem problem = test::small_problem(64, 64, 2, kMxfp4);
  SyntheticLayer layer = make_layer(problem);
  FakeWorld world;
  Engine engine = world.engine();
  engine.freeze();
  const Plan plan = plan_of(problem);
  const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(world.driver.table(), plan.prepared_weight_bytes()));
  const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(world.driver.table(), must(prepare_workspace_bytes(problem, layer.source))));
  const std::string message = error_of(
      engine.prepare(plan, layer.source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), nullptr), ErrorCode::not_prepared);
  for (const char* part : {"kernel scan", "manifest", "w4moe build"}) CHECK(message.find(part) != std::string::npos);
  CHECK(world.driver.count("launch_kernel_ex") == 0);
  CHECK(world.driver.count("memset_d8_async") == 0);
}

TEST_CASE("prepare: a failing driver call is the call's error, and leaves no valid header behind") {
  const Problem problem = test::small_problem(64, 64, 2, kMxfp4);
  SyntheticLayer layer = make_layer(problem);
  for (const char* call : {"memset_d8_async", "memcpy_htod_async", "memcpy_dtoh_async", "stream_synchronize", "launch_kernel_ex"}) {
    FakeWorld world;
    Engine engine = world.engine();
    const Plan plan = plan_of(problem);
    teach(world, plan);
    const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(world.driver.table(), plan.prepared_weight_bytes()));
    const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(world.driver.table(), must(prepare_workspace_bytes(problem, layer.source))));
    INFO(call);
    for (int successes = 0;; ++successes) {  // until no call is left to fail
      REQUIRE(successes < 100);
      world.driver.fail(call, driver::kOutOfMemory, successes);
      const auto result = engine.prepare(plan, layer.source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), nullptr);
      world.driver.clear_failures();
      if (result) break;
      CHECK(result.error().message.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
      // Only the wait for the header itself may fail when it is there.
      if (std::string_view(call) != "stream_synchronize") CHECK_FALSE(engine.adopt(dest.data(), dest.bytes()).ok());
    }
    CHECK(world.driver.count(call) > 1);
  }
}

}  // namespace
}  // namespace w4moe::test
