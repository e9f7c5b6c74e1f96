#include "tests/lockstep/layer.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tests/lockstep/half.hpp"
#include "tests/lockstep/pack.hpp"
#include "tests/lockstep/render.hpp"

namespace w4moe::lockstep {
namespace {

double value_of_code(const QuantFormat& f, u8 code, u8 zero) {
  if (f.is_int4()) return static_cast<double>(code) - zero;
  static constexpr double kValues[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return (code & 8) != 0 ? -kValues[code & 7] : kValues[code & 7];
}

double value_of_scale(const QuantFormat& f, u16 bits) {
  switch (f.scale) {
    case ScaleType::e8m0: return std::ldexp(1.0, static_cast<int>(bits) - 127);
    case ScaleType::e4m3: {
      const int exponent = (bits >> 3) & 15;
      const int mantissa = bits & 7;
      return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    }
    case ScaleType::bf16: return value_of_half(DType::bf16, bits);
    case ScaleType::f16: return value_of_half(DType::f16, bits);
  }
  return 0.0;
}

using Random = std::mt19937_64;

i64 uniform(Random& r, i64 low, i64 high) { return low + static_cast<i64>(r() % static_cast<u64>(high - low + 1)); }

u16 random_scale(Random& r, const LayerCase& c) {
  switch (c.format.scale) {
    case ScaleType::e8m0: return static_cast<u16>(c.integers ? 127 : uniform(r, 117, 123));
    case ScaleType::e4m3: return static_cast<u16>(c.integers ? 0x38 : uniform(r, 0, 0x38));
    case ScaleType::bf16: return static_cast<u16>(half_of(DType::bf16, c.integers ? 1.0 : 0.002 * static_cast<double>(uniform(r, 1, 20))));
    case ScaleType::f16: return static_cast<u16>(half_of(DType::f16, c.integers ? 1.0 : 0.002 * static_cast<double>(uniform(r, 1, 20))));
  }
  return 0;
}

u8 random_code(Random& r, const LayerCase& c, u8 zero) {
  if (!c.integers) return static_cast<u8>(uniform(r, 0, 15));
  if (c.format.is_int4()) return static_cast<u8>(std::clamp<i64>(zero + uniform(r, -1, 1), 0, 15));
  static constexpr u8 kCodes[4] = {0, 2, 10, 0};  // 0, 1, -1
  return kCodes[uniform(r, 0, 3)];
}

Matrix make_matrix(Random& r, const LayerCase& c, i64 rows, i64 k) {
  Matrix m;
  m.rows = rows;
  m.k = k;
  const i64 groups = c.format.groups(k);
  for (i64 i = 0; i < c.experts * rows * groups; ++i) {
    m.scales.push_back(random_scale(r, c));
    m.zeros.push_back(static_cast<u8>(c.format.has_zero_point ? uniform(r, 4, 11) : kInt4SymmetricZero));
  }
  for (i64 er = 0; er < c.experts * rows; ++er) {
    for (i64 i = 0; i < k; ++i) m.codes.push_back(random_code(r, c, m.zeros[static_cast<std::size_t>(er * groups + c.format.group_of(i))]));
    m.bias.push_back(c.has_bias ? static_cast<float>(uniform(r, -2, 2)) * (c.integers ? 1.0f : 0.125f) : 0.0f);
  }
  return m;
}

double activation_of(const LayerCase& c, double gate, double up) {
  const ActivationParams& p = c.params;
  if ((c.activation == Activation::silu || c.activation == Activation::swiglu_oai) && p.has_limit != 0) {
    gate = std::min<double>(gate, p.limit);
    up = std::clamp<double>(up, -p.limit, p.limit);
  }
  const auto sigmoid = [](double v) { return 1.0 / (1.0 + std::exp(-v)); };
  switch (c.activation) {
    case Activation::silu: return gate * sigmoid(gate) * up;
    case Activation::swiglu_oai: return gate * sigmoid(p.alpha * gate) * (up + p.beta);
    case Activation::geglu_tanh: return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case Activation::geglu_erf: return 0.5 * gate * (1 + std::erf(gate / std::sqrt(2.0))) * up;
    case Activation::situ: return 4 * std::tanh(gate / 4) * sigmoid(gate) * 25 * std::tanh(up / 25);
    case Activation::relu2: return up > 0 ? up * up : 0.0;
    case Activation::silu_ungated: return up * sigmoid(up);
    case Activation::gelu_ungated: return 0.5 * up * (1 + std::erf(up / std::sqrt(2.0)));
  }
  return 0.0;
}

i64 id_at(const Layer& l, i64 token, i64 j) {
  const i64 at = token * l.c.topk + j;
  return l.c.id_type == IdType::i64 ? l.ids.as<i64>()[at] : l.ids.as<i32>()[at];
}
double router_at(const Layer& l, i64 token, i64 j) {
  const i64 at = token * l.c.topk + j;
  return l.c.router_dtype == DType::f32 ? l.router.as<float>()[at] : value_of_half(DType::bf16, l.router.as<u16>()[at]);
}

/// FC2 of fp16 layers reads its row of h in fp16 after a power of two that brings the largest value into [2^14, 2^15).
void round_as_scaled_row(std::vector<double>& h) {
  double largest = 0.0;
  for (const double v : h) largest = std::max(largest, std::fabs(v));
  if (largest == 0.0) return;
  const int shift = 14 - std::ilogb(largest);
  for (double& v : h) v = std::ldexp(value_of_half(DType::f16, half_of(DType::f16, std::ldexp(v, shift))), -shift);
}

}  // namespace

double Layer::weight(const Matrix& m, i64 expert, i64 row, i64 k) const {
  const i64 group = (expert * m.rows + row) * c.format.groups(m.k) + c.format.group_of(k);
  return value_of_code(c.format, m.codes[static_cast<std::size_t>((expert * m.rows + row) * m.k + k)], m.zeros[static_cast<std::size_t>(group)]) *
         value_of_scale(c.format, m.scales[static_cast<std::size_t>(group)]);
}

Layer make_layer(const LayerCase& c) {
  Random r(c.seed);
  Layer l;
  l.c = c;
  if (is_gated(c.activation)) l.gate = make_matrix(r, c, c.intermediate, c.hidden);
  l.up = make_matrix(r, c, c.intermediate, c.hidden);
  l.down = make_matrix(r, c, c.hidden, c.intermediate);
  l.layout = WeightLayout{Shape{c.hidden, c.intermediate, c.experts, c.topk, c.tokens}, c.format, is_gated(c.activation), c.has_bias};
  pack_layer(l);

  l.x_stride = c.hidden + c.x_padding_elems;
  l.x = Buffer((c.tokens - 1) * l.x_stride * 2 + c.hidden * 2);
  for (i64 t = 0; t < c.tokens; ++t) {
    for (i64 h = 0; h < c.hidden; ++h) {
      const double v = c.integers ? static_cast<double>(uniform(r, -1, 1)) : static_cast<double>(uniform(r, -1000, 1000)) * 0.002;
      l.x.as<u16>()[t * l.x_stride + h] = t == c.nan_token ? u16{0x7fff} : half_of(c.dtype, v);
    }
  }
  const i64 pairs = c.tokens * c.topk;
  l.ids = Buffer(pairs * id_type_bytes(c.id_type));
  l.router = Buffer(pairs * dtype_bytes(c.router_dtype));
  for (i64 p = 0; p < pairs; ++p) {
    i64 id = uniform(r, 0, c.experts - 1);
    if (c.strange_ids && uniform(r, 0, 3) == 0) id = uniform(r, 0, 1) == 0 ? -1 : c.experts + uniform(r, 0, 1000);
    if (c.id_type == IdType::i64) {
      l.ids.as<i64>()[p] = id;
    } else {
      l.ids.as<i32>()[p] = static_cast<i32>(id);
    }
    const double weight = c.integers ? 0.5 * static_cast<double>(uniform(r, 1, 2)) : 0.01 * static_cast<double>(uniform(r, 1, 100));
    if (c.router_dtype == DType::f32) {
      l.router.as<float>()[p] = static_cast<float>(weight);
    } else {
      l.router.as<u16>()[p] = half_of(DType::bf16, weight);
    }
  }
  return l;
}

LayerRun run_layer(LockstepDevice& device, const Layer& l, const Headers& headers) {
  const LayerCase& c = l.c;
  const Shape shape{c.hidden, c.intermediate, c.experts, c.topk, c.tokens};
  const RouteLayout routes{c.tokens, c.topk, c.experts, c.tile.block_rows};
  const ScratchLayout scratch{shape, c.dtype, routes.max_blocks()};
  Buffer regions[kRegionCount];
  for (i32 i = 0; i < kRegionCount; ++i) regions[i] = Buffer(scratch.bytes_of(static_cast<Region>(i)));
  const auto region = [&](Region r) -> Buffer& { return regions[static_cast<int>(r)]; };
  *region(Region::control).as<ControlRegion>() = ControlRegion{kControlMagic, kControlVersion, 0, 0};
  Buffer out((c.tokens - 1) * l.x_stride * 2 + c.hidden * 2);
  u32* h_amax = c.dtype == DType::f16 ? region(Region::h_amax).as<u32>() : nullptr;

  RouteArgs route;
  route.ids = l.ids.data();
  route.ids_row_stride_elems = c.topk;
  route.tokens = c.tokens;
  route.topk = static_cast<i32>(c.topk);
  route.experts = static_cast<i32>(c.experts);
  route.max_blocks = routes.max_blocks();
  route.block_rows = c.tile.block_rows;
  route.id_type = c.id_type;
  route.control = region(Region::control).as<ControlRegion>();
  route.counts = region(Region::counts).as<RouteCounts>();
  route.sorted_pairs = region(Region::sorted_pairs).as<i32>();
  route.blocks = region(Region::blocks).as<RouteBlock>();
  route.h_amax = h_amax;

  Fc1Args fc1;
  fc1.x = l.x.data();
  fc1.x_row_stride_elems = l.x_stride;
  fc1.weights = l.packed_fc1.data();
  fc1.globals = l.globals.as<ExpertGlobals>();
  fc1.bias = c.has_bias ? l.fc1_bias.as<float>() : nullptr;
  fc1.router_weights = l.router.data();
  fc1.router_row_stride_elems = c.topk;
  fc1.counts = route.counts;
  fc1.sorted_pairs = route.sorted_pairs;
  fc1.blocks = route.blocks;
  fc1.h = region(Region::h).data();
  fc1.h_amax = h_amax;
  fc1.activation = c.params;
  fc1.topk = route.topk;
  fc1.router_dtype = c.router_dtype;
  fc1.weight_on_input = c.weight_on_input ? 1 : 0;

  Fc2Args fc2;
  fc2.h = fc1.h;
  fc2.h_amax = h_amax;
  fc2.weights = l.packed_fc2.data();
  fc2.globals = fc1.globals;
  fc2.bias = c.has_bias ? l.fc2_bias.as<float>() : nullptr;
  fc2.router_weights = l.router.data();
  fc2.router_row_stride_elems = c.topk;
  fc2.counts = route.counts;
  fc2.sorted_pairs = route.sorted_pairs;
  fc2.blocks = route.blocks;
  fc2.route_rows = region(Region::route_rows).data();
  fc2.topk = route.topk;
  fc2.router_dtype = c.router_dtype;
  fc2.weight_on_input = fc1.weight_on_input;

  CombineArgs combine;
  combine.route_rows = fc2.route_rows;
  combine.ids = route.ids;
  combine.ids_row_stride_elems = c.topk;
  combine.out = out.data();
  combine.out_row_stride_elems = l.x_stride;
  combine.tokens = c.tokens;
  combine.hidden = c.hidden;
  combine.topk = route.topk;
  combine.experts = route.experts;
  combine.id_type = c.id_type;
  combine.control = route.control;

  Variant gemm{KernelKind::fc1, Arch::sm_90a, c.hidden, c.intermediate, c.format, c.activation, c.dtype, c.tile};
  Variant variants[4] = {gemm, gemm, gemm, gemm};
  variants[0] = Variant{};
  variants[0].kind = KernelKind::route;
  variants[2].kind = KernelKind::fc2;
  variants[3] = Variant{};
  variants[3].kind = KernelKind::combine;
  variants[3].dtype = c.dtype;

  LayerRun run;
  const auto launch = [&](const Variant& v, i64 grid, i64 shared, const auto& args) {
    if (!run.error.empty()) return;
    KernelSource source = render_variant(v);
    source.headers.insert(source.headers.end(), headers.begin(), headers.end());
    const auto kernel = device.load(source);
    if (!kernel) {
      run.error = kernel.error().message;
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    const Status status = device.launch(*kernel, {grid, 1, v.threads(), shared}, args);
    run.milliseconds += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (!status) run.error = status.error().message;
  };
  launch(variants[0], 1, route_shared_bytes(c.experts), route);
  launch(variants[1], gemm_grid_x(variants[1], routes.max_blocks()), variants[1].shared_bytes(), fc1);
  launch(variants[2], gemm_grid_x(variants[2], routes.max_blocks()), variants[2].shared_bytes(), fc2);
  launch(variants[3], combine_grid_x(c.hidden, c.tokens), 0, combine);
  if (!run.error.empty()) return run;
  for (const Buffer& b : regions) {
    if (!b.tail_untouched()) run.error = "a kernel wrote past a scratch region";
  }
  if (!out.tail_untouched()) run.error = "a kernel wrote past the output";
  for (i64 t = 0; t < c.tokens; ++t) {
    for (i64 h = 0; h < c.hidden; ++h) run.out.push_back(value_of_half(c.dtype, out.as<u16>()[t * l.x_stride + h]));
    for (i64 h = c.hidden; h < l.x_stride && t + 1 < c.tokens; ++h) {
      if (out.as<u16>()[t * l.x_stride + h] != 0xffff) run.error = fmt::format("wrote column {} of row {}", h, t);
    }
  }
  return run;
}

std::vector<double> reference(const Layer& l) {
  const LayerCase& c = l.c;
  const bool narrow = c.dtype == DType::bf16;
  const auto stored = [&](double v) { return narrow ? value_of_half(DType::bf16, half_of(DType::bf16, v)) : static_cast<double>(static_cast<float>(v)); };
  std::vector<double> out;
  for (i64 t = 0; t < c.tokens; ++t) {
    std::vector<double> sum(static_cast<std::size_t>(c.hidden), 0.0);
    for (i64 j = 0; j < c.topk; ++j) {
      const i64 e = id_at(l, t, j);
      if (e < 0 || e >= c.experts) continue;
      const double w = router_at(l, t, j);
      const double on_input = c.weight_on_input ? w : 1.0;
      std::vector<double> h;
      const auto project = [&](const Matrix& m, i64 row) {
        double v = 0.0;
        for (i64 k = 0; k < c.hidden; ++k) v += l.weight(m, e, row, k) * value_of_half(c.dtype, l.x.as<u16>()[t * l.x_stride + k]);
        return v * on_input + m.bias[static_cast<std::size_t>(e * m.rows + row)];
      };
      for (i64 i = 0; i < c.intermediate; ++i) {
        const double up = project(l.up, i);
        h.push_back(stored(activation_of(c, is_gated(c.activation) ? project(l.gate, i) : 0.0, up)));
      }
      if (!narrow) round_as_scaled_row(h);
      for (i64 n = 0; n < c.hidden; ++n) {
        double v = 0.0;
        for (i64 i = 0; i < c.intermediate; ++i) v += l.weight(l.down, e, n, i) * h[static_cast<std::size_t>(i)];
        v += l.down.bias[static_cast<std::size_t>(e * c.hidden + n)];
        sum[static_cast<std::size_t>(n)] += stored(v * (c.weight_on_input ? 1.0 : w));
      }
    }
    for (const double v : sum) out.push_back(value_of_half(c.dtype, half_of(c.dtype, v)));
  }
  return out;
}

double worst_row_error(const Layer& l, const std::vector<double>& got, const std::vector<double>& expected) {
  double worst = 0.0;
  for (i64 t = 0; t < l.c.tokens; ++t) {
    double error = 0.0;
    double norm = 0.0;
    for (i64 h = 0; h < l.c.hidden; ++h) {
      const std::size_t at = static_cast<std::size_t>(t * l.c.hidden + h);
      const double d = got[at] - expected[at];
      error += std::isfinite(d) ? d * d : 1e300;
      norm += expected[at] * expected[at];
    }
    worst = std::max(worst, norm > 0 ? std::sqrt(error / norm) : error);
  }
  return worst;
}

}  // namespace w4moe::lockstep
