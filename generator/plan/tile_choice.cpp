#include "generator/plan/tile_choice.hpp"

#include <algorithm>
#include <cmath>

namespace w4moe {
namespace {

MatrixLayout matrix_of(const Problem& p, KernelKind kind) {
  const WeightLayout w{p.shape, p.format, is_gated(p.activation), p.has_bias};
  return kind == KernelKind::fc1 ? w.fc1() : w.fc2();
}

const TileChoice* find(TileClass format, std::string_view pin, TileUse use) {
  for (const TileChoice& c : kPortableTiles) {
    if (c.format == format && c.pin == pin && c.use == use) return &c;
  }
  return nullptr;
}

/// CTAs per SM below which a launch of the usual tile leaves the device part empty, in quarters: measured per format class.
i64 few_quarters(TileClass format) { return format == TileClass::mxfp4 ? 10 : 16; }

/// Fewest touched experts with which the usual tile fills the device.
i64 experts_to_fill(const Problem& p, const DeviceSpec& device, KernelKind kind, const GemmTile& many) {
  const i64 row_tiles = ceil_div(matrix_of(p, kind).strips(), many.tile_strips());
  return ceil_div(ceil_div(few_quarters(tile_class(p)) * device.sms, 4), row_tiles);
}

struct Candidates {
  const TileChoice* many;
  const TileChoice* few;
  bool is_short;  ///< `many` is the tile for short K, and `few` does not apply
};

Candidates candidates(const Problem& p, KernelKind kind, const TileRule& rule, bool split_k) {
  const TileClass format = tile_class(p);
  const i64 units = matrix_of(p, kind).k_units();
  // K of very few units leaves no loop to speak of: the tallest tile amortises its prologue best.
  if (const TileChoice* c = find(format, rule.pin, TileUse::short_k); c != nullptr && kind == KernelKind::fc2 && units <= kShortKUnits) {
    return {c, nullptr, true};
  }
  const TileChoice* few = find(format, rule.pin, TileUse::few);
  if (few != nullptr && few->tile.warps_k > 1 && !split_k) few = nullptr;
  return {find(format, rule.pin, TileUse::many), few, false};
}

}  // namespace

TileClass tile_class(const Problem& problem) {
  if (problem.dtype != DType::bf16 || scales_on_accumulator(problem.format, problem.dtype)) return TileClass::other;
  return problem.format.is_mxfp4() ? TileClass::mxfp4 : TileClass::nvfp4;
}

const TileChoice& choose_tile(const Problem& problem, const DeviceSpec& device, KernelKind kind, const TileRule& rule, i64 tokens, bool split_k) {
  const Candidates c = candidates(problem, kind, rule, split_k);
  if (c.few == nullptr) return *c.many;
  const i64 touched = std::min(problem.shape.experts, problem.shape.pairs(tokens));
  return touched < experts_to_fill(problem, device, kind, c.many->tile) ? *c.few : *c.many;
}

/// A thread for each pair, or find_block() would miss some.
static_assert(std::ranges::all_of(kPortableTiles, [](const TileChoice& c) { return c.tile.block_rows != 8 || c.tile.threads() >= kSelfRoutedPairs; }));

const TileChoice& choose_self_routed_tile(const Problem& problem, const DeviceSpec& device, KernelKind kind, const TileRule& rule, i64 tokens) {
  const TileClass format = tile_class(problem);
  const TileChoice* few = find(format, rule.pin, TileUse::few);
  if (few == nullptr || format == TileClass::other) return choose_tile(problem, device, kind, rule, tokens);
  if (kind == KernelKind::fc1) {
    // NVFP4: splitting K between warps pays where there is much of it.
    const bool pays = format == TileClass::mxfp4 || matrix_of(problem, kind).k_units() >= kLongKUnits;
    return pays ? *few : *find(format, rule.pin, TileUse::many);
  }
  return format == TileClass::mxfp4 ? choose_tile(problem, device, kind, rule, tokens) : *candidates(problem, kind, rule, true).many;
}

namespace {

/// Experts that tokens with random routes touch on average: E (1 - (1 - k/E)^m).
double expected_experts(const Shape& shape, i64 tokens) {
  const double share = std::min(1.0, static_cast<double>(shape.topk) / static_cast<double>(shape.experts));
  double missed = 1;  // by every token; multiplied up, so that the bits are the same on every machine
  double power = 1 - share;
  for (i64 m = tokens; m > 0; m /= 2, power *= power) missed *= m % 2 == 1 ? power : 1;
  return static_cast<double>(shape.experts) * (1 - missed);
}

/// Time of whole waves of CTAs against that of evenly spread work, on average over the counts that random routes make likely.
double wave_loss(double items, i64 sms) {
  double sum = 0;
  for (const double share : {0.96, 1.0, 1.04}) {
    const double waves = items * share / static_cast<double>(sms);
    sum += std::ceil(waves) / waves;
  }
  return sum / 3;
}

}  // namespace

bool wgmma_fills(const Problem& problem, const DeviceSpec& device, i64 tokens, bool saves_route) {
  const double experts = expected_experts(problem.shape, tokens);
  const i64 tile_strips = kWgmmaTiles[0].tile.tile_strips();
  double loss = 0;
  double units = 0;
  for (const KernelKind kind : {KernelKind::fc1, KernelKind::fc2}) {
    const MatrixLayout matrix = matrix_of(problem, kind);
    const double work = static_cast<double>(matrix.strips() * matrix.k_units());
    loss += work * wave_loss(experts * static_cast<double>(ceil_div(matrix.strips(), tile_strips)), device.sms);
    units += work;
  }
  const bool is_short = matrix_of(problem, KernelKind::fc1).k_units() < kLongKUnits;
  const WaveLoss& most = kWgmmaWaveLoss;
  const double route = saves_route ? kRouteShare : 0;
  return loss / units * (1 + route) <= (tile_class(problem) == TileClass::mxfp4 ? most.mxfp4 : is_short ? most.nvfp4_short : most.nvfp4);
}

DirectChoice direct_fc1_tile(const Problem& problem, const DeviceSpec& device) {
  const MatrixLayout matrix = matrix_of(problem, KernelKind::fc1);
  const i64 strips = matrix.strips() * problem.shape.topk;
  const i64 slots = static_cast<i64>(kDirectFc1OneStrip.min_ctas_per_sm) * device.sms;
  if (matrix.k_units() >= kLongKUnits && strips <= kDirectFc1TwoStrips.warps_rows * slots) {
    return {KernelKind::fc1_direct, strips <= slots ? kDirectFc1OneStrip : kDirectFc1TwoStrips};
  }
  const i64 ctas = ceil_div(matrix.strips(), kDirectFc1Many.tile_strips()) * problem.shape.topk;
  if (ctas >= 4 * device.sms) return {KernelKind::fc1, kDirectFc1Most};
  return {KernelKind::fc1, ctas >= 2 * device.sms && tile_class(problem) != TileClass::other ? kDirectFc1Many : kDirectFc1Few};
}

DirectChoice direct_fc2_tile(const Problem& problem, const DeviceSpec& device) {
  const i64 strips = matrix_of(problem, KernelKind::fc2).strips();
  for (const GemmTile& tile : {kDirectFc2Two, kDirectFc2Three}) {
    if (strips <= static_cast<i64>(tile.min_ctas_per_sm) * device.sms) return {KernelKind::fc2_direct, tile};
  }
  return {KernelKind::fc2_direct, kDirectFc2Four};
}

}  // namespace w4moe
