#include "generator/plan/tile_choice.hpp"

#include <algorithm>

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

i64 next_tile_change(const Problem& problem, const DeviceSpec& device, KernelKind kind, const TileRule& rule, i64 tokens, bool split_k) {
  constexpr i64 kNever = kMaxTokens + 1;
  const Candidates c = candidates(problem, kind, rule, split_k);
  if (c.few == nullptr) return kNever;
  const i64 needed = experts_to_fill(problem, device, kind, c.many->tile);
  if (needed > problem.shape.experts) return kNever;
  const i64 change = ceil_div(needed, problem.shape.topk);
  return change > tokens ? change : kNever;
}

DirectChoice direct_fc1_tile(const Problem& problem, const DeviceSpec& device) {
  const MatrixLayout matrix = matrix_of(problem, KernelKind::fc1);
  const i64 strips = matrix.strips() * problem.shape.topk;
  const i64 slots = static_cast<i64>(kDirectFc1OneStrip.min_ctas_per_sm) * device.sms;
  if (matrix.k_units() >= kDirectFc1LongKUnits && strips <= kDirectFc1TwoStrips.warps_rows * slots) {
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
