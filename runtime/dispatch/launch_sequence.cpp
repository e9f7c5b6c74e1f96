#include "runtime/dispatch/launch_sequence.hpp"

#include <cstring>
#include <type_traits>

namespace w4moe {
namespace {

static_assert(sizeof(RouteArgs) <= kMaxArgsBytes && sizeof(Fc1Args) <= kMaxArgsBytes && sizeof(Fc2Args) <= kMaxArgsBytes &&
                  sizeof(Fc2DirectArgs) <= kMaxArgsBytes && sizeof(CombineArgs) <= kMaxArgsBytes,
              "a launch holds every argument struct");

/// Typed pointers into the bound memory.
struct Pointers {
  const u8* weights;
  u8* scratch;
  const Plan& plan;

  template <class T>
  T* region(Region r) const {
    const RegionSpan span = plan.scratch.span(r);
    return span.bytes == 0 ? nullptr : reinterpret_cast<T*>(scratch + span.offset_bytes);
  }
  const ExpertGlobals* globals() const {
    return reinterpret_cast<const ExpertGlobals*>(weights + plan.weights.globals_offset_bytes());
  }
  const float* bias(i64 offset_bytes) const {
    return plan.problem.has_bias ? reinterpret_cast<const float*>(weights + offset_bytes) : nullptr;
  }
};

i64 or_dense(i64 stride_elems, i64 width) { return stride_elems == 0 ? width : stride_elems; }

/// Blocks of routes that the GEMM kernels of a launch look at.
i64 launch_blocks(const Plan& plan, const Bucket& bucket, i64 tokens) {
  const Shape& shape = plan.problem.shape;
  if (bucket.direct || bucket.self_routed) return shape.pairs(tokens);  // any of them may begin a block
  return RouteLayout{tokens, shape.topk, shape.experts, bucket.block_rows}.max_blocks();
}

DirectRoutes direct_routes(const Plan& plan, const RunArgs& run) {
  DirectRoutes direct;
  direct.ids = run.ids;
  direct.ids_row_stride_elems = or_dense(run.ids_row_stride_elems, plan.problem.shape.topk);
  direct.tokens = static_cast<i32>(run.tokens);
  direct.id_type = run.id_type;
  direct.experts = static_cast<i32>(plan.problem.shape.experts);
  return direct;
}

RouteArgs route_args(const Pointers& p, const Bucket& bucket, const RunArgs& run) {
  RouteArgs a;
  a.ids = run.ids;
  a.ids_row_stride_elems = or_dense(run.ids_row_stride_elems, p.plan.problem.shape.topk);
  a.tokens = run.tokens;
  a.topk = static_cast<i32>(p.plan.problem.shape.topk);
  a.experts = static_cast<i32>(p.plan.problem.shape.experts);
  a.max_blocks = launch_blocks(p.plan, bucket, run.tokens);
  a.block_rows = bucket.block_rows;
  a.id_type = run.id_type;
  a.control = p.region<ControlRegion>(Region::control);
  a.counts = p.region<RouteCounts>(Region::counts);
  a.sorted_pairs = p.region<i32>(Region::sorted_pairs);
  a.blocks = p.region<RouteBlock>(Region::blocks);
  a.chunk_counts = p.region<i32>(Region::chunk_counts);
  a.h_amax = p.region<u32>(Region::h_amax);
  return a;
}

Fc1Args fc1_args(const Pointers& p, const Bucket& bucket, const RunArgs& run) {
  const Problem& problem = p.plan.problem;
  Fc1Args a;
  a.x = run.x;
  a.x_row_stride_elems = or_dense(run.x_row_stride_elems, problem.shape.hidden);
  a.weights = p.weights + p.plan.weights.fc1_offset_bytes();
  a.globals = p.globals();
  a.bias = p.bias(p.plan.weights.fc1_bias_offset_bytes());
  a.router_weights = run.router_weights;
  a.router_row_stride_elems = or_dense(run.router_row_stride_elems, problem.shape.topk);
  a.counts = p.region<RouteCounts>(Region::counts);
  a.sorted_pairs = p.region<i32>(Region::sorted_pairs);
  a.blocks = p.region<RouteBlock>(Region::blocks);
  a.h = p.region<void>(Region::h);
  a.h_amax = p.region<u32>(Region::h_amax);
  if (bucket.direct || bucket.self_routed) a.direct = direct_routes(p.plan, run);
  a.activation = problem.params;
  a.topk = static_cast<i32>(problem.shape.topk);
  a.router_dtype = run.router_dtype;
  a.weight_on_input = problem.weight_on_input ? 1 : 0;
  return a;
}

Fc2Args fc2_args(const Pointers& p, const Bucket& bucket, const RunArgs& run) {
  const Problem& problem = p.plan.problem;
  Fc2Args a;
  a.h = p.region<void>(Region::h);
  a.h_amax = p.region<u32>(Region::h_amax);
  a.weights = p.weights + p.plan.weights.fc2_offset_bytes();
  a.globals = p.globals();
  a.bias = p.bias(p.plan.weights.fc2_bias_offset_bytes());
  a.router_weights = run.router_weights;
  a.router_row_stride_elems = or_dense(run.router_row_stride_elems, problem.shape.topk);
  a.counts = p.region<RouteCounts>(Region::counts);
  a.sorted_pairs = p.region<i32>(Region::sorted_pairs);
  a.blocks = p.region<RouteBlock>(Region::blocks);
  a.route_rows = p.region<void>(Region::route_rows);
  if (bucket.self_routed) a.direct = direct_routes(p.plan, run);
  a.topk = static_cast<i32>(problem.shape.topk);
  a.router_dtype = run.router_dtype;
  a.weight_on_input = problem.weight_on_input ? 1 : 0;
  return a;
}

Fc2DirectArgs fc2_direct_args(const Pointers& p, const RunArgs& run) {
  const Problem& problem = p.plan.problem;
  Fc2DirectArgs a;
  a.h = p.region<void>(Region::h);
  a.weights = p.weights + p.plan.weights.fc2_offset_bytes();
  a.globals = p.globals();
  a.bias = p.bias(p.plan.weights.fc2_bias_offset_bytes());
  a.router_weights = run.router_weights;
  a.out = run.out;
  a.direct = direct_routes(p.plan, run);
  a.control = p.region<ControlRegion>(Region::control);
  a.topk = static_cast<i32>(problem.shape.topk);
  a.router_dtype = run.router_dtype;
  a.weight_on_input = problem.weight_on_input ? 1 : 0;
  return a;
}

CombineArgs combine_args(const Pointers& p, const RunArgs& run) {
  const Shape& shape = p.plan.problem.shape;
  CombineArgs a;
  a.route_rows = p.region<void>(Region::route_rows);
  a.ids = run.ids;
  a.ids_row_stride_elems = or_dense(run.ids_row_stride_elems, shape.topk);
  a.out = run.out;
  a.out_row_stride_elems = or_dense(run.out_row_stride_elems, shape.hidden);
  a.tokens = run.tokens;
  a.hidden = shape.hidden;
  a.topk = static_cast<i32>(shape.topk);
  a.experts = static_cast<i32>(shape.experts);
  a.id_type = run.id_type;
  a.control = p.region<ControlRegion>(Region::control);
  return a;
}

}  // namespace

template <class Args>
void Launch::set_args(const Args& value) {
  static_assert(std::is_trivially_copyable_v<Args>);
  args_bytes = static_cast<u32>(sizeof(Args));
  std::memcpy(args.data(), &value, sizeof(Args));
}

LaunchedKernels launched_kernels(const Plan& plan, const Bucket& bucket) {
  if (bucket.direct) return LaunchedKernels{{bucket.fc1, bucket.fc2}, 2};
  if (bucket.self_routed) return LaunchedKernels{{bucket.fc1, bucket.fc2, plan.combine}, 3};
  if (bucket.parallel_route) return LaunchedKernels{{plan.route_count, plan.route_place, bucket.fc1, bucket.fc2, plan.combine}, 5};
  return LaunchedKernels{{plan.route, bucket.fc1, bucket.fc2, plan.combine}, 4};
}

i64 grid_ctas(const Plan& plan, const Bucket& bucket, int index, i64 tokens) {
  const Variant& v = plan.kernels[static_cast<std::size_t>(index)].variant;
  switch (v.kind) {
    case KernelKind::fc1:
    case KernelKind::fc1_direct:
    case KernelKind::fc2: return gemm_grid_x(v, launch_blocks(plan, bucket, tokens), plan.device.sms);
    case KernelKind::fc2_direct: return direct_grid_x(v);
    case KernelKind::combine: return combine_grid_x(plan.problem.shape.hidden, tokens);
    case KernelKind::route_count:
    case KernelKind::route_place: return RouteLayout{tokens, plan.problem.shape.topk, plan.problem.shape.experts, bucket.block_rows}.chunks();
    default: return 1;
  }
}

LaunchSequence make_launches(const Plan& plan, const Bucket& bucket, const void* weights, void* scratch, const RunArgs& run) {
  const Pointers p{static_cast<const u8*>(weights), static_cast<u8*>(scratch), plan};
  LaunchSequence sequence;
  for (const int index : launched_kernels(plan, bucket)) {
    const Variant& v = plan.kernels[static_cast<std::size_t>(index)].variant;
    Launch& launch = sequence.add();
    launch.kernel = index;
    launch.grid_x = static_cast<u32>(grid_ctas(plan, bucket, index, run.tokens));
    launch.threads = static_cast<u32>(v.threads());
    launch.shared_bytes = static_cast<u32>(kernel_shared_bytes(v, plan.problem.shape));
    launch.pdl = v.has_pdl();
    switch (v.kind) {
      case KernelKind::route:
      case KernelKind::route_count:
      case KernelKind::route_place: launch.set_args(route_args(p, bucket, run)); break;
      case KernelKind::fc1:
      case KernelKind::fc1_direct: launch.set_args(fc1_args(p, bucket, run)); break;
      case KernelKind::fc2: launch.set_args(fc2_args(p, bucket, run)); break;
      case KernelKind::fc2_direct: launch.set_args(fc2_direct_args(p, run)); break;
      case KernelKind::combine: launch.set_args(combine_args(p, run)); break;
      case KernelKind::pack:
      case KernelKind::scan: break;  // no kernels of a plan
    }
  }
  return sequence;
}

}  // namespace w4moe
