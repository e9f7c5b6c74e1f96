#include "generator/plan/kernel_work.hpp"

#include <algorithm>
#include <cmath>

namespace w4moe {
namespace {

constexpr i64 kColumnTile = 8;       ///< columns of one mma
constexpr double kSpread = 8;        ///< standard deviations to either side that are summed over
constexpr double kSamples = 1024;    ///< route counts looked at: beyond, they change nothing but their neighbours' weights

/// Columns that one block of `rows` routes costs.
i64 block_columns(const Variant& v, i64 rows) { return v.is_wgmma() ? v.wgmma.width_for(static_cast<i32>(rows)) : v.block_rows(); }

struct Blocks {
  i64 blocks = 0;
  i64 columns = 0;
};

/// Blocks of one expert with `routes` routes, as the routing kernels cut them.
Blocks blocks_of(const Variant& v, i64 routes) {
  const i64 each = even_block_rows(static_cast<i32>(routes), v.block_rows());
  const i64 full = routes / each;
  const i64 rest = routes % each;
  return {full + (rest > 0 ? 1 : 0), full * block_columns(v, each) + (rest > 0 ? block_columns(v, rest) : 0)};
}

}  // namespace

ExpectedRouting expected_routing(const Variant& v, const Shape& shape, i64 tokens) {
  // Routes of one expert: binomial over the tokens (their experts differ), or over the routes where top-k exceeds E.
  const bool distinct = shape.topk < shape.experts;
  const double trials = static_cast<double>(distinct ? tokens : shape.pairs(tokens));
  const double chance = static_cast<double>(distinct ? shape.topk : 1) / static_cast<double>(shape.experts);
  ExpectedRouting expected;
  if (chance >= 1) {
    const Blocks b = blocks_of(v, shape.pairs(tokens));
    return {1, static_cast<double>(b.blocks), static_cast<double>(b.columns)};
  }
  const double mean = trials * chance;
  const double sigma = std::sqrt(mean * (1 - chance));
  const i64 low = static_cast<i64>(std::max(0.0, std::floor(mean - kSpread * sigma - 1)));
  const i64 high = static_cast<i64>(std::min(trials, std::ceil(mean + kSpread * sigma + kSpread)));
  const i64 step = std::max<i64>(1, static_cast<i64>(static_cast<double>(high - low) / kSamples));
  const i64 mode = low + static_cast<i64>((mean - static_cast<double>(low)) / static_cast<double>(step)) * step;
  double sum = 0;
  const auto add = [&](i64 routes, double weight) {
    sum += weight;
    if (routes == 0) return;
    const Blocks b = blocks_of(v, routes);
    expected.experts += weight;
    expected.blocks += weight * static_cast<double>(b.blocks);
    expected.columns += weight * static_cast<double>(b.columns);
  };
  const double odds = chance / (1 - chance);
  const auto walk = [&](i64 direction) {
    double weight = 1;
    for (i64 n = mode; n >= low && n <= high; n += direction * step) {
      if (direction > 0 || n != mode) add(n, weight);
      for (i64 i = 0; i < step; ++i) {
        const double at = static_cast<double>(n + direction * i);
        weight *= direction > 0 ? (trials - at) / (at + 1) * odds : at / ((trials - at + 1) * odds);
      }
    }
  };
  walk(1);
  walk(-1);
  const double scale = static_cast<double>(shape.experts) / sum;
  expected.experts *= scale;
  expected.blocks *= scale;
  expected.columns *= scale;
  return expected;
}

KernelWork kernel_work(const Variant& v, const Shape& shape, const DeviceSpec& device, i64 tokens, double touched) {
  const MatrixLayout matrix = v.matrix();
  ExpectedRouting r = expected_routing(v, shape, tokens);
  if (touched > 0 && r.experts > 0) r = {touched, r.blocks * touched / r.experts, r.columns * touched / r.experts};
  if (v.is_direct()) r.columns = r.blocks * kColumnTile;

  const double expert_bytes = static_cast<double>(matrix.expert_stride_bytes());
  const double units = static_cast<double>(matrix.strips() * matrix.k_units());
  const ScratchLayout scratch{shape, v.dtype, 0};
  const bool is_fc1 = v.kind == KernelKind::fc1 || v.kind == KernelKind::fc1_direct;
  KernelWork w;
  w.weight_bytes = r.experts * expert_bytes;
  w.reread_bytes = std::max(0.0, r.blocks - r.experts) * expert_bytes;
  w.output_bytes = static_cast<double>(is_fc1 ? shape.pairs(tokens) * scratch.h_row_bytes() : shape.pairs(tokens) * scratch.route_row_bytes());
  w.unit_visits = r.blocks * units;
  w.unit_columns = r.columns / static_cast<double>(kColumnTile) * units;
  w.sms = device.sms;
  w.slots = static_cast<double>(device.sms) * v.min_ctas_per_sm();
  switch (v.kind) {
    case KernelKind::fc2_direct:  // a CTA per strip walks over all routes
      w.items = static_cast<double>(direct_grid_x(v));
      w.chain = static_cast<double>(matrix.k_units() * shape.topk) / (v.tile.warps() * v.tile.units_per_warp);
      w.output_bytes = static_cast<double>(shape.hidden * dtype_bytes(v.dtype));
      break;
    default:
      w.items = r.blocks * static_cast<double>(v.row_tiles());
      // A warp waits for a stage's weights once for all the units it has under way.
      w.chain = static_cast<double>(matrix.k_units()) * (v.is_wgmma() ? 1.0 : static_cast<double>(v.tile.strips_per_warp) / (v.tile.warps_k * v.tile.units_per_warp));
      break;
  }
  return w;
}

}  // namespace w4moe
