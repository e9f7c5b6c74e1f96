#include "generator/plan/notes.hpp"

#include <algorithm>

#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

void append(std::string& text, const std::string& part) {
  if (!text.empty()) text += "; ";
  text += part;
}

/// The part-filled pieces that a GEMM kernel works on, "" where it has none.
std::string tails_of(const Variant& v) {
  const MatrixLayout m = v.matrix();
  std::string text;
  if (const i64 last = m.last_unit_k(); last != kUnitK) {
    append(text, fmt::format("K tail: {} columns leave {} of {} in the last unit", m.k, last, kUnitK));
  }
  if (const i64 last = v.last_tile_strips(); last != v.tile_strips()) {
    append(text, fmt::format("row tail: {} rows leave {} of {} in the last tile", m.rows, last * kStripRows, v.tile_rows()));
  }
  return text;
}

double average_routes(const Shape& shape, i64 tokens) {
  const i64 routes = shape.pairs(tokens);
  return static_cast<double>(routes) / static_cast<double>(std::min(routes, shape.experts));
}

std::string padding_note(std::string_view name, i64 packed_bytes, i64 checkpoint_bytes, std::string_view what) {
  const i64 padding = packed_bytes - checkpoint_bytes;
  const double percent = 100.0 * static_cast<double>(padding) / static_cast<double>(checkpoint_bytes);
  return fmt::format("{} weights: {} bytes packed, {} of them {} ({:.2f} % over the checkpoint's {})", name, packed_bytes, padding,
                     what, percent, checkpoint_bytes);
}

}  // namespace

std::string gemm_reason(const Variant& v, const std::string& changes) {
  if (v.kind == KernelKind::fc2_direct) {
    return fmt::format("{} rows x one token in {} warps, {} units in flight per warp", kStripRows, v.tile.warps(), v.tile.units_per_warp);
  }
  if (v.kind == KernelKind::fc1_direct) {
    return fmt::format("{} rows x one token in {} warps, {} of them for each 16 rows, {} units in flight per warp", v.tile_rows(),
                       v.tile.warps(), v.tile.warps_k, v.tile.units_per_warp);
  }
  std::string text;
  if (v.is_wgmma()) {
    const auto* widths = v.wgmma.widths;
    text = fmt::format("{} rows x {} routes in {} consumer warps, {} stages of K {}, {} bytes shared", v.tile_rows(),
                       fmt::join(widths, widths + v.wgmma.width_count(), "/"), v.wgmma.consumer_warps(), v.wgmma.stages,
                       v.wgmma.stage_k(), v.shared_bytes());
  } else {
    text = fmt::format("{} rows x {} routes in {} warps, {} stages of K {}, {} bytes shared", v.tile_rows(), v.tile.block_rows,
                       v.tile.warps(), v.tile.stages, v.tile.stage_k(), v.shared_bytes());
  }
  if (!changes.empty()) append(text, changes);
  if (const std::string tails = tails_of(v); !tails.empty()) append(text, tails);
  return text;
}

std::string bucket_reason(const Shape& shape, const Bucket& bucket, const TileRule& rule, const std::vector<const TileRule*>& rules,
                          bool pinned) {
  const std::string range = fmt::format("{:.2f} to {:.2f} routes per touched expert", average_routes(shape, bucket.first_tokens),
                                        average_routes(shape, bucket.last_tokens));
  if (pinned) return fmt::format("pinned to {} for every m; {}", rule.pin, range);
  std::string text = range;
  append(text, rule.max_average_routes == 0 ? fmt::format("{} serves any average", rule.pin)
                                            : fmt::format("{} serves up to {}", rule.pin, rule.max_average_routes));
  const auto at = std::find(rules.begin(), rules.end(), &rule);
  if (at != rules.begin()) append(text, fmt::format("not {}: only up to {}", (*(at - 1))->pin, (*(at - 1))->max_average_routes));
  if (at + 1 < rules.end()) append(text, fmt::format("not {}: more padding rows per expert", (*(at + 1))->pin));
  if (bucket.parallel_route) append(text, "routes sorted by many CTAs");
  return text;
}

std::vector<std::string> plan_notes(const Plan& plan, const std::string& wgmma_obstacle) {
  std::vector<std::string> notes;
  if (std::find(plan.options.pins.begin(), plan.options.pins.end(), kBatchInvariantPin) != plan.options.pins.end()) {
    notes.push_back("batch-invariant: one kernel family for every m, no direct kernels, no tile that shares K between warps");
  }
  if (!wgmma_obstacle.empty()) notes.push_back(fmt::format("family {} does not serve this: {}", kWgmmaFamily, wgmma_obstacle));
  const WeightLayout& w = plan.weights;
  // A group wider than a unit has its scale in every unit that it spans.
  const bool repeats = plan.problem.format.group_size == kWholeRow || plan.problem.format.group_size > kUnitK;
  const std::string_view what = repeats ? "padding and repeated scales" : "padding";
  notes.push_back(padding_note("fc1", w.fc1().total_bytes(), w.fc1_checkpoint_bytes(), what));
  notes.push_back(padding_note("fc2", w.fc2().total_bytes(), w.fc2_checkpoint_bytes(), what));
  if (!plan.problem.format.divides(plan.problem.shape.intermediate)) {
    notes.push_back(fmt::format("compact tail: intermediate {} ends in a partial group of {}", plan.problem.shape.intermediate,
                                plan.problem.format.group_size));
  }
  for (const PlannedKernel& kernel : plan.kernels) {
    if (kernel.variant.kind != KernelKind::fc1 && kernel.variant.kind != KernelKind::fc2) continue;
    if (const std::string tails = tails_of(kernel.variant); !tails.empty()) notes.push_back(kernel.name + ": " + tails);
  }
  if (plan.chunk_tokens < plan.problem.shape.max_tokens) {
    notes.push_back(fmt::format("scratch cap {}: runs of more than {} tokens are cut into chunks of {}",
                                plan.options.scratch_cap_bytes, plan.chunk_tokens, plan.chunk_tokens));
  }
  if (plan.problem.shape.max_tokens == 0) notes.push_back("max_tokens 0: no kernel is planned, a run accepts m = 0 only");
  return notes;
}

Status refuse_tails(const Plan& plan) {
  std::string text;
  for (const PlannedKernel& kernel : plan.kernels) {
    if (kernel.variant.kind != KernelKind::fc1 && kernel.variant.kind != KernelKind::fc2) continue;
    if (const std::string tails = tails_of(kernel.variant); !tails.empty()) append(text, kernel.name + ": " + tails);
  }
  if (text.empty()) return {};
  return unsupported("pin 'no-tail': {}", text);
}

}  // namespace w4moe
