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
/// Inputs in blocks of their exact size, with the strides that the case asks for.
struct Tensors {
  Buffer x, ids, router, out;
  i64 stride = 0;
  RunArgs args;
  MoeInputs inputs;
};

namespace {

Tensors make_tensors(const Problem& problem, const LayerCase& c) {
  const Shape& shape = problem.shape;
  const SyntheticInputs made = make_inputs(problem, c.tokens, c.data, c.id_type, c.router_dtype);
  Tensors t;
  t.stride = shape.hidden + c.row_padding_elems;
  const i64 extent_bytes = c.tokens == 0 ? 0 : ((c.tokens - 1) * t.stride + shape.hidden) * 2;
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
    i64 id = c.ids.empty() ? i64{made.ids[static_cast<std::size_t>(p)]} : c.ids[static_cast<std::size_t>(p)];
    if (c.strange_ids && p % 5 == 1) id = p % 2 == 0 ? -1 : shape.experts + p;
    if (c.id_type == IdType::i64) {
      t.ids.as<i64>()[p] = p % 7 == 3 && c.strange_ids ? (i64{1} << 32) + id : id;  // wrong in the upper half only
    } else {
      t.ids.as<i32>()[p] = static_cast<i32>(id);
    }
  }
  const void* const router = c.router_dtype == DType::f32 ? static_cast<const void*>(made.weights.data()) : made.weights_bf16.data();
  if (t.router.bytes() > 0) std::memcpy(t.router.data(), router, static_cast<std::size_t>(t.router.bytes()));  // without tokens it is null
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

/// Another tile for every GEMM kernel, and the scratch that it takes.
void replace_tile(Plan& plan, const GemmTile& tile) {
  for (PlannedKernel& kernel : plan.kernels) {
    if (kernel.variant.kind == KernelKind::fc1 || kernel.variant.kind == KernelKind::fc2) kernel.variant.tile = tile;
  }
  for (Bucket& bucket : plan.buckets) bucket.block_rows = tile.block_rows;
  const Shape& shape = plan.problem.shape;
  plan.scratch.max_blocks = RouteLayout{shape.max_tokens, shape.topk, shape.experts, tile.block_rows}.max_blocks();
  for (PlannedRegion& region : plan.regions) {
    const RegionSpan span = plan.scratch.span(region.region);
    region.offset_bytes = span.offset_bytes;
    region.bytes = span.bytes;
  }
}

}  // namespace

PreparedLayer::PreparedLayer(const LayerCase& c) : problem_(c.problem) {
  problem_.shape.max_tokens = c.max_tokens > 0 ? c.max_tokens : c.tokens;
  PlanOptions options;
  options.pins = c.pins;
  if (c.tile) options.pins.push_back("portable");
  w4moe::Result<Plan> plan = make_plan(problem_, lockstep_device(), options);
  if (!plan) {
    error_ = plan.error().message;
    return;
  }
  plan_ = std::move(*plan);
  if (c.tile) replace_tile(plan_, *c.tile);
  SyntheticOptions data = c.data;
  if (!is_gated(problem_.activation)) data.gate_up_order = GateUpOrder::separate;
  layer_ = make_layer(problem_, data);
  weights_ = std::make_shared<Buffer>(plan_.prepared_weight_bytes());
  const Status packed = pack_on_cpu(problem_, layer_.source, {weights_->as<std::byte>(), static_cast<std::size_t>(weights_->bytes())});
  if (!packed) error_ = packed.error().message;
  engine_ = std::make_unique<LockstepEngine>(c.device);
  engine_->replace_headers(c.headers);
}

std::string PreparedLayer::run_once(const LayerCase& c, Tensors& t, u8 filling, LayerResult& result) {
  Buffer scratch(plan_.required_bytes());
  const Result<PreparedWeights> adopted = LockstepEngine::adopt(weights_->data(), weights_->bytes());
  if (!adopted) return adopted.error().message;
  if (Status s = LockstepEngine::init_scratch(plan_, scratch.data(), scratch.bytes()); !s) return s.error().message;
  engine_->fill_scratch_with(filling);
  std::memset(t.out.data(), 0xff, static_cast<std::size_t>(t.out.bytes()));
  const auto begin = std::chrono::steady_clock::now();
  const Status ran = engine_->run(plan_, *adopted, scratch.data(), scratch.bytes(), t.args, c.times);
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (!ran) return ran.error().message;
  if (!t.out.tail_untouched()) return "a kernel wrote past the output";
  if (!scratch.tail_untouched()) return "a kernel wrote past the scratch";
  const i64 hidden = problem_.shape.hidden;
  std::vector<u16> out;
  for (i64 token = 0; token < c.tokens; ++token) {
    const u16* row = t.out.as<u16>() + token * t.stride;
    out.insert(out.end(), row, row + hidden);
    for (i64 h = hidden; h < t.stride && token + 1 < c.tokens; ++h) {
      if (row[h] != 0xffff) return "a kernel wrote between the rows of the output";
    }
  }
  if (!result.out.empty() && result.out != out) return "the output depends on what lay in the scratch before";
  result.out = std::move(out);
  return {};
}

LayerResult PreparedLayer::run(const LayerCase& c) {
  LayerResult result;
  result.error = error_;
  if (!result.error.empty()) return result;
  for (const int index : plan_.launched_by(plan_.bucket_for(c.tokens))) result.kernels += plan_.kernels[static_cast<std::size_t>(index)].name + " ";
  Tensors tensors = make_tensors(problem_, c);
  for (const u8 filling : c.fillings) {
    result.error = run_once(c, tensors, filling, result);
    if (!result.error.empty()) return result;
  }
  result.mirror.resize(result.out.size());
  ReferenceOptions rounding;
  rounding.rounds_route_rows = !plan_.bucket_for(c.tokens).direct;
  if (Status s = reference_mirror(problem_, layer_.source, tensors.inputs, result.mirror, rounding); !s) {
    result.error = s.error().message;
    return result;
  }
  result.worst_ulp = max_ulp_distance(problem_.dtype, result.out, result.mirror);
  std::vector<double> mirror;
  for (const u16 bits : result.mirror) mirror.push_back(float_of(problem_.dtype, bits));
  const ErrorReport report = compare_outputs(problem_.dtype, result.out, mirror, problem_.shape.hidden);
  result.relative_rmse = report.kind_mismatches == 0 ? report.relative_rmse : std::numeric_limits<double>::infinity();
  return result;
}

LayerResult run_layer(const LayerCase& c) { return PreparedLayer(c).run(c); }

LayerCase exact(LayerCase c) {
  c.data.data = SyntheticData::small_integers;
  return c;
}

void check_result(const LayerResult& result, bool exact) {
  if (!result.error.empty()) FAIL(result.error);
  INFO(result.kernels << ", " << result.milliseconds << " ms, relative RMSE " << result.relative_rmse);
  if (exact) {
    CHECK(result.worst_ulp == 0);
  } else {
    CHECK(result.worst_ulp <= 2);
    CHECK(result.relative_rmse < 1e-3);
  }
}

void check_exact(const LayerCase& c) {
  const LayerResult result = run_layer(c);
  check_result(result, true);
  const auto is_zero = [](u16 bits) { return (bits & 0x7fff) == 0; };
  REQUIRE(!std::all_of(result.mirror.begin(), result.mirror.end(), is_zero));  // a comparison of zeros would prove nothing
}

void check_close(const LayerCase& c) { check_result(run_layer(c), false); }

}  // namespace w4moe::lockstep
