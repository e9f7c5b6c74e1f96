#include "tests/lockstep/layer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "runtime/weights/float_bits.hpp"
#include "tests/lockstep/buffer.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::lockstep {
namespace {

/// Inputs in blocks of their exact size, with the strides that the case asks for.
struct Tensors {
  Buffer x, ids, router, out;
  i64 stride = 0;
  RunArgs args;
  MoeInputs inputs;
};

Tensors make_tensors(const LayerCase& c) {
  const Shape& shape = c.problem.shape;
  const SyntheticInputs made = make_inputs(c.problem, c.tokens, c.data, c.id_type, c.router_dtype);
  Tensors t;
  t.stride = shape.hidden + c.row_padding_elems;
  const i64 extent_bytes = ((c.tokens - 1) * t.stride + shape.hidden) * 2;
  t.x = Buffer(extent_bytes);
  t.out = Buffer(extent_bytes);
  for (i64 token = 0; token < c.tokens; ++token) {
    u16* row = t.x.as<u16>() + token * t.stride;
    std::memcpy(row, made.x.data() + token * shape.hidden, static_cast<std::size_t>(shape.hidden) * 2);
    if (token == c.nan_token) std::fill(row, row + shape.hidden, u16{0x7fff});
  }
  const i64 pairs = shape.pairs(c.tokens);
  t.ids = Buffer(pairs * id_type_bytes(c.id_type));
  t.router = Buffer(pairs * dtype_bytes(c.router_dtype));
  for (i64 p = 0; p < pairs; ++p) {
    i64 id = made.ids[static_cast<std::size_t>(p)];
    if (c.strange_ids && p % 5 == 1) id = p % 2 == 0 ? -1 : shape.experts + p;
    if (c.id_type == IdType::i64) {
      t.ids.as<i64>()[p] = p % 7 == 3 && c.strange_ids ? (i64{1} << 32) + id : id;  // wrong in the upper half only
    } else {
      t.ids.as<i32>()[p] = static_cast<i32>(id);
    }
  }
  if (c.router_dtype == DType::f32) {
    std::memcpy(t.router.data(), made.weights.data(), static_cast<std::size_t>(t.router.bytes()));
  } else {
    std::memcpy(t.router.data(), made.weights_bf16.data(), static_cast<std::size_t>(t.router.bytes()));
  }
  t.args.tokens = c.tokens;
  t.args.x = t.x.data();
  t.args.x_row_stride_elems = t.stride;
  t.args.ids = t.ids.data();
  t.args.id_type = c.id_type;
  t.args.router_weights = t.router.data();
  t.args.router_dtype = c.router_dtype;
  t.args.out = t.out.data();
  t.args.out_row_stride_elems = t.stride;
  t.inputs = MoeInputs{c.tokens, t.x.data(), t.stride, t.ids.data(), c.id_type, shape.topk, t.router.data(), c.router_dtype, shape.topk};
  return t;
}

std::string error_of_run(const LayerCase& c, const Plan& plan, const SyntheticLayer& layer, Tensors& t, LayerResult& result) {
  Buffer weights(plan.prepared_weight_bytes());
  const Status packed = pack_on_cpu(c.problem, layer.source, {weights.as<std::byte>(), static_cast<std::size_t>(weights.bytes())});
  if (!packed) return packed.error().message;
  Buffer scratch(plan.required_bytes());
  LockstepEngine engine(c.device);
  engine.replace_headers(c.headers);
  const Result<PreparedWeights> adopted = LockstepEngine::adopt(weights.data(), weights.bytes());
  if (!adopted) return adopted.error().message;
  if (Status s = LockstepEngine::init_scratch(plan, scratch.data(), scratch.bytes()); !s) return s.error().message;
  for (const int index : plan.launched_by(plan.bucket_for(c.tokens))) result.kernels += plan.kernels[static_cast<std::size_t>(index)].name + " ";
  if (const auto built = engine.build(plan); !built) return built.error().message;
  const auto begin = std::chrono::steady_clock::now();
  const Status ran = engine.run(plan, *adopted, scratch.data(), scratch.bytes(), t.args, c.times);
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (!ran) return ran.error().message;
  if (!t.out.tail_untouched()) return "a kernel wrote past the output";
  if (!scratch.tail_untouched()) return "a kernel wrote past the scratch";
  return {};
}

}  // namespace

LayerCase exact(LayerCase c) {
  c.data.data = SyntheticData::small_integers;
  return c;
}

LayerResult run_layer(const LayerCase& c) {
  LayerResult result;
  PlanOptions options;
  options.pins = c.pins;
  if (c.tile) options.pins.push_back("portable");
  Problem problem = c.problem;
  problem.shape.max_tokens = c.tokens;
  LayerCase at = c;
  at.problem = problem;
  if (!is_gated(problem.activation)) at.data.gate_up_order = GateUpOrder::separate;
  w4moe::Result<Plan> plan = make_plan(problem, lockstep_device(), options);
  if (!plan) return {plan.error().message, {}, {}, 0, 0, 0, {}};
  if (c.tile) {
    for (PlannedKernel& kernel : plan->kernels) {
      if (kernel.variant.kind == KernelKind::fc1 || kernel.variant.kind == KernelKind::fc2) kernel.variant.tile = *c.tile;
    }
    for (Bucket& bucket : plan->buckets) bucket.block_rows = c.tile->block_rows;
    const RouteLayout routes{c.tokens, problem.shape.topk, problem.shape.experts, c.tile->block_rows};
    plan->scratch.max_blocks = routes.max_blocks();
    for (PlannedRegion& region : plan->regions) {
      const RegionSpan span = plan->scratch.span(region.region);
      region.offset_bytes = span.offset_bytes;
      region.bytes = span.bytes;
    }
  }

  const SyntheticLayer layer = make_layer(problem, at.data);
  Tensors tensors = make_tensors(at);
  result.error = error_of_run(at, *plan, layer, tensors, result);
  if (!result.error.empty()) return result;

  const i64 hidden = problem.shape.hidden;
  for (i64 t = 0; t < c.tokens; ++t) {
    const u16* row = tensors.out.as<u16>() + t * tensors.stride;
    result.out.insert(result.out.end(), row, row + hidden);
    for (i64 h = hidden; h < tensors.stride && t + 1 < c.tokens; ++h) {
      if (row[h] != 0xffff) result.error = "a kernel wrote between the rows of the output";
    }
  }
  result.mirror.resize(result.out.size());
  ReferenceOptions rounding;
  rounding.rounds_route_rows = !plan->bucket_for(c.tokens).direct;
  if (Status s = reference_mirror(problem, layer.source, tensors.inputs, result.mirror, rounding); !s) {
    result.error = s.error().message;
    return result;
  }
  result.worst_ulp = max_ulp_distance(problem.dtype, result.out, result.mirror);
  std::vector<double> mirror;
  for (const u16 bits : result.mirror) mirror.push_back(float_of(problem.dtype, bits));
  const ErrorReport report = compare_outputs(problem.dtype, result.out, mirror, hidden);
  result.relative_rmse = report.kind_mismatches == 0 ? report.relative_rmse : std::numeric_limits<double>::infinity();
  return result;
}

void check_exact(const LayerCase& c) {
  const LayerResult result = run_layer(c);
  if (!result.error.empty()) FAIL(result.error);
  INFO(result.kernels << ", " << result.milliseconds << " ms");
  const auto is_zero = [](u16 bits) { return (bits & 0x7fff) == 0; };
  REQUIRE(!std::all_of(result.mirror.begin(), result.mirror.end(), is_zero));  // a comparison of zeros would prove nothing
  CHECK(result.worst_ulp == 0);
}

void check_close(const LayerCase& c) {
  const LayerResult result = run_layer(c);
  if (!result.error.empty()) FAIL(result.error);
  INFO(result.kernels << ", " << result.milliseconds << " ms, relative RMSE " << result.relative_rmse);
  CHECK(result.worst_ulp <= 2);
  CHECK(result.relative_rmse < 1e-3);
}

}  // namespace w4moe::lockstep
