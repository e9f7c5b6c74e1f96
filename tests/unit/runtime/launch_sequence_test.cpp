#include "runtime/dispatch/launch_sequence.hpp"

#include <cstring>

#include "runtime/dispatch/chunks.hpp"
#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

template <class Args>
Args args_of(const Launch& launch) {
  REQUIRE(launch.args_bytes == sizeof(Args));
  Args args;
  std::memcpy(&args, launch.args.data(), sizeof(Args));
  return args;
}

// Addresses that are never followed.
u8* at(u64 address) { return reinterpret_cast<u8*>(address); }

RunArgs run_args(i64 tokens) {
  RunArgs a;
  a.tokens = tokens;
  a.x = at(0x10000);
  a.ids = at(0x20000);
  a.router_weights = at(0x30000);
  a.out = at(0x40000);
  return a;
}

}  // namespace

TEST_CASE("launches: route, fc1, fc2 and combine in this order, with the variant's threads and shared memory") {
  const Plan plan = small_plan();
  const Bucket& bucket = plan.bucket_for(5);
  const LaunchSequence launches = make_launches(plan, bucket, at(0x1000000), at(0x2000000), run_args(5));
  REQUIRE(launches.size() == 4);
  CHECK(launches[0].kernel == plan.route);
  CHECK(launches[1].kernel == bucket.fc1);
  CHECK(launches[2].kernel == bucket.fc2);
  CHECK(launches[3].kernel == plan.combine);
  for (const Launch& launch : launches) {
    const Variant& v = plan.kernels[static_cast<std::size_t>(launch.kernel)].variant;
    CHECK(launch.threads == static_cast<u32>(v.threads()));
    CHECK(launch.pdl);
    if (v.kind != KernelKind::route) CHECK(launch.shared_bytes == static_cast<u32>(v.shared_bytes()));
  }
  CHECK(launches[0].shared_bytes >= 2 * 8 * sizeof(i32));  // a count and a first slot per expert
}

TEST_CASE("launches: grids cover every block that any routing of the tokens can make, counted by hand") {
  Problem p = small_problem();
  p.shape = Shape{256, 128, 4, 2, 4096};
  const Plan plan = plan_of(p);
  for (const i64 tokens : {i64{2}, i64{3}, i64{17}, i64{64}, i64{1000}, i64{4096}}) {
    const Bucket& bucket = plan.bucket_for(tokens);
    const LaunchSequence launches = make_launches(plan, bucket, at(0x1000000), at(0x2000000), run_args(tokens));
    // Worst routing: one route to each of three experts and all others to the fourth, or to each as many as there are.
    const i64 pairs = tokens * 2;
    i64 most = 0;
    const i64 others = std::min<i64>(3, pairs - 1);
    for (i64 alone = 0; alone <= others; ++alone) {
      const i64 rest = pairs - alone;
      most = std::max(most, alone + (rest + bucket.block_rows - 1) / bucket.block_rows);
    }
    const Variant& fc1 = plan.kernels[static_cast<std::size_t>(bucket.fc1)].variant;
    const Variant& fc2 = plan.kernels[static_cast<std::size_t>(bucket.fc2)].variant;
    const auto ctas = [&](const Variant& v) {  // 256 packed rows in both matrices; persistent kernels have a CTA per SM at most
      const i64 items = most * ((256 + v.tile_rows() - 1) / v.tile_rows());
      return static_cast<u64>(v.is_wgmma() ? std::min<i64>(items, plan.device.sms) : items);
    };
    INFO("tokens " << tokens);
    REQUIRE(launches.size() == (pairs >= 2048 ? 5 : 4));
    const std::size_t gemm = launches.size() - 3;
    for (std::size_t i = 0; i < gemm; ++i) CHECK(launches[i].grid_x == (gemm == 1 ? 1u : static_cast<u64>(std::min<i64>(64, (pairs + 1023) / 1024))));
    CHECK(launches[gemm].grid_x == ctas(fc1));
    CHECK(launches[gemm + 1].grid_x == ctas(fc2));
    CHECK(launches[gemm + 2].grid_x == static_cast<u64>((tokens + 7) / 8));  // 256 columns are 32 vectors, 256 a CTA
  }
}

TEST_CASE("launches: a single token takes the direct kernels, with a block for each route, and no routing") {
  const Plan plan = small_plan();
  const Bucket& bucket = plan.bucket_for(1);
  REQUIRE(bucket.direct);
  u8* scratch = at(0x2000000);
  RunArgs run = run_args(1);
  run.id_type = IdType::i64;
  run.router_dtype = DType::bf16;
  const LaunchSequence launches = make_launches(plan, bucket, at(0x1000000), scratch, run);
  REQUIRE(launches.size() == 2);
  const std::vector<int> planned = plan.launched_by(bucket);
  CHECK(std::vector<int>{launches[0].kernel, launches[1].kernel} == planned);
  const Variant& v1 = plan.kernels[static_cast<std::size_t>(bucket.fc1)].variant;
  const Variant& v2 = plan.kernels[static_cast<std::size_t>(bucket.fc2)].variant;
  CHECK(v2.kind == KernelKind::fc2_direct);
  CHECK(launches[0].grid_x == static_cast<u64>(2 * ((2 * 128 + v1.tile_rows() - 1) / v1.tile_rows())));  // two routes
  CHECK(launches[1].grid_x == 256 / 16);
  CHECK(launches[1].shared_bytes >= 2 * 128 * sizeof(u16));  // h of both routes
  const auto fc1 = args_of<Fc1Args>(launches[0]);
  const auto fc2 = args_of<Fc2DirectArgs>(launches[1]);
  CHECK(fc1.direct.ids == run.ids);
  CHECK(fc1.direct.id_type == IdType::i64);
  CHECK(fc1.direct.experts == 8);
  CHECK(fc2.direct.ids == run.ids);
  CHECK(fc2.h == fc1.h);
  CHECK(fc2.out == run.out);
  CHECK(fc2.router_dtype == DType::bf16);
  CHECK(fc2.topk == 2);
  CHECK(fc2.control == reinterpret_cast<const ControlRegion*>(scratch));
  CHECK(fc2.weights > fc1.weights);
}

TEST_CASE("launches: few routes take FC1, FC2 and combine, which find their blocks in the ids") {
  const Plan plan = small_plan();
  const Bucket& bucket = plan.bucket_for(2);
  REQUIRE(bucket.self_routed);
  RunArgs run = run_args(2);
  run.ids_row_stride_elems = 5;
  const LaunchSequence launches = make_launches(plan, bucket, at(0x1000000), at(0x2000000), run);
  REQUIRE(launches.size() == 3);
  CHECK(std::vector<int>{launches[0].kernel, launches[1].kernel, launches[2].kernel} == plan.launched_by(bucket));
  const Variant& v1 = plan.kernels[static_cast<std::size_t>(bucket.fc1)].variant;
  CHECK(launches[0].grid_x == static_cast<u64>(2 * 2 * v1.row_tiles()));  // any pair may begin a block
  for (const DirectRoutes& direct : {args_of<Fc1Args>(launches[0]).direct, args_of<Fc2Args>(launches[1]).direct}) {
    CHECK(direct.ids == run.ids);
    CHECK(direct.ids_row_stride_elems == 5);
    CHECK(direct.tokens == 2);
    CHECK(direct.experts == 8);
  }
}

TEST_CASE("launches: with routing, FC1 is told of no direct routes and the routing kernel of every block") {
  const Plan plan = small_plan();
  const Bucket& bucket = plan.bucket_for(9);
  const LaunchSequence launches = make_launches(plan, bucket, at(0x1000000), at(0x2000000), run_args(9));
  const Variant& v1 = plan.kernels[static_cast<std::size_t>(bucket.fc1)].variant;
  CHECK(args_of<Fc1Args>(launches[1]).direct.ids == nullptr);
  CHECK(args_of<RouteArgs>(launches[0]).max_blocks * v1.row_tiles() == launches[1].grid_x);
}

TEST_CASE("launches: pointers lie inside the bound memory, and strides of 0 become dense rows") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const bool bias : {false, true}) {
      Problem p = small_problem();
      p.dtype = dtype;
      p.has_bias = bias;
      const Plan plan = plan_of(p);
      u8* weights = at(0x1000000);
      u8* scratch = at(0x4000000);
      const LaunchSequence launches = make_launches(plan, plan.bucket_for(64), weights, scratch, run_args(64));
      const auto route = args_of<RouteArgs>(launches[0]);
      const auto fc1 = args_of<Fc1Args>(launches[1]);
      const auto fc2 = args_of<Fc2Args>(launches[2]);
      const auto combine = args_of<CombineArgs>(launches[3]);
      const auto in = [](const void* pointer, const u8* base, i64 bytes) {
        return static_cast<const u8*>(pointer) >= base && static_cast<const u8*>(pointer) < base + bytes;
      };
      for (const void* pointer : {static_cast<const void*>(route.control), static_cast<const void*>(route.counts),
                                  static_cast<const void*>(route.sorted_pairs), static_cast<const void*>(route.blocks), static_cast<const void*>(fc1.h),
                                  static_cast<const void*>(fc2.route_rows)}) {
        CHECK(in(pointer, scratch, plan.required_bytes()));
      }
      CHECK((route.h_amax != nullptr) == (dtype == DType::f16));
      CHECK(in(fc1.weights, weights, plan.prepared_weight_bytes()));
      CHECK(in(fc2.weights, weights, plan.prepared_weight_bytes()));
      CHECK(fc2.weights > fc1.weights);
      CHECK((fc1.bias != nullptr) == bias);
      CHECK((fc2.bias != nullptr) == bias);
      // What one kernel writes is what the next one reads.
      CHECK(fc1.counts == route.counts);
      CHECK(fc1.blocks == route.blocks);
      CHECK(fc2.sorted_pairs == route.sorted_pairs);
      CHECK(fc2.h == fc1.h);
      CHECK(fc2.h_amax == route.h_amax);
      CHECK(combine.route_rows == fc2.route_rows);
      CHECK(combine.control == route.control);

      CHECK(route.ids_row_stride_elems == 2);
      CHECK(fc1.x_row_stride_elems == 256);
      CHECK(fc2.router_row_stride_elems == 2);
      CHECK(combine.out_row_stride_elems == 256);
      CHECK(route.block_rows == plan.bucket_for(64).block_rows);
    }
  }
}

TEST_CASE("R4, N27: strides, id type and router dtype reach the kernels as given") {
  const Plan plan = small_plan();
  RunArgs run = run_args(7);
  run.x_row_stride_elems = 264;
  run.out_row_stride_elems = 512;
  run.ids_row_stride_elems = 3;
  run.router_row_stride_elems = 5;
  run.id_type = IdType::i64;
  run.router_dtype = DType::bf16;
  const LaunchSequence launches = make_launches(plan, plan.bucket_for(7), at(0x1000000), at(0x2000000), run);
  const auto route = args_of<RouteArgs>(launches[0]);
  const auto fc1 = args_of<Fc1Args>(launches[1]);
  const auto fc2 = args_of<Fc2Args>(launches[2]);
  const auto combine = args_of<CombineArgs>(launches[3]);
  CHECK(route.ids_row_stride_elems == 3);
  CHECK(route.id_type == IdType::i64);
  CHECK(fc1.x_row_stride_elems == 264);
  CHECK(fc1.router_dtype == DType::bf16);
  CHECK(fc2.router_row_stride_elems == 5);
  CHECK(fc2.router_dtype == DType::bf16);
  CHECK(combine.out_row_stride_elems == 512);
  CHECK(combine.ids_row_stride_elems == 3);
  CHECK(combine.id_type == IdType::i64);
  CHECK(combine.tokens == 7);
}

TEST_CASE("launches: no programmatic launch before Hopper") {
  const Plan plan = plan_of(small_problem(), {}, Arch::sm_80);
  for (const Launch& launch : make_launches(plan, plan.bucket_for(1), at(0x1000000), at(0x2000000), run_args(1))) CHECK_FALSE(launch.pdl);
}

TEST_CASE("P3: a run under a scratch cap is cut into chunks that cover each token once") {
  Problem p = small_problem();
  PlanOptions options;
  options.scratch_cap_bytes = plan_of(p).required_bytes() - 1;
  const Plan plan = plan_of(p, options);
  REQUIRE(plan.chunk_tokens > 0);
  REQUIRE(plan.chunk_tokens < 64);
  RunArgs run = run_args(64);
  run.x_row_stride_elems = 264;
  run.id_type = IdType::i64;
  i64 next = 0;
  must(for_each_chunk(plan, run, [&](const Bucket& bucket, const RunArgs& chunk) -> Status {
    CHECK(bucket.first_tokens <= chunk.tokens);
    CHECK(bucket.last_tokens >= chunk.tokens);
    CHECK(chunk.x == at(0x10000 + static_cast<u64>(next) * 264 * 2));
    CHECK(chunk.ids == at(0x20000 + static_cast<u64>(next) * 2 * 8));
    CHECK(chunk.router_weights == at(0x30000 + static_cast<u64>(next) * 2 * 4));
    CHECK(chunk.out == at(0x40000 + static_cast<u64>(next) * 256 * 2));
    next += chunk.tokens;
    return {};
  }));
  CHECK(next == 64);
}
