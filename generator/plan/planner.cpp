// make_plan(): buckets by routes per expert, tiles from the rule table, scratch from the contract. No CUDA call, no state.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/plan/fit_tile.hpp"
#include "generator/plan/notes.hpp"
#include "generator/plan/pins.hpp"
#include "generator/plan/rules.hpp"
#include "generator/plan/tile_choice.hpp"
#include "generator/problem/errors.hpp"
#include "w4moe/plan.hpp"

namespace w4moe {
namespace {

/// Most CTAs along the x of a grid.
constexpr i64 kMaxGridX = std::numeric_limits<i32>::max();

Status check_device(const DeviceSpec& d) {
  if (to_string(d.arch) == "unknown") return parse_arch(fmt::format("{}", static_cast<int>(d.arch))).error();
  if (d.sms < 1) return invalid_argument("device {}: {} multiprocessors (accepted: 1 and more)", d.name, d.sms);
  if (d.shared_optin_bytes < 1 || d.shared_per_sm_bytes < d.shared_optin_bytes) {
    return invalid_argument("device {}: shared memory of {} bytes per CTA and {} per SM contradict each other", d.name,
                            d.shared_optin_bytes, d.shared_per_sm_bytes);
  }
  if (d.max_threads_per_sm < 1) {
    return invalid_argument("device {}: {} threads per SM (accepted: 1 and more)", d.name, d.max_threads_per_sm);
  }
  return {};
}

/// A range of token counts under one rule of the ladder.
struct Rung {
  const TileRule* rule;
  i64 first_tokens;
  i64 last_tokens;
  bool direct = false;       ///< one token: FC1 reads the ids, FC2 writes the output
  bool self_routed = false;  ///< few routes: FC1 and FC2 find their blocks in the ids

  bool needs_route() const { return !direct && !self_routed; }
};

/// Largest m whose routes per touched expert stay within the rule. An expert is touched by one route at least, so up to E routes
/// the average is 1; beyond, it is m * topk / E.
i64 last_tokens_of(const TileRule& rule, const Shape& shape) {
  if (rule.max_average_routes == 0) return kMaxTokens;
  return rule.max_average_routes * shape.experts / shape.topk;
}

/// Whether a single token can be served by the direct kernels.
bool serves_direct(const Problem& problem, const DeviceSpec& device) {
  Variant v;
  v.hidden = problem.shape.hidden;
  v.intermediate = problem.shape.intermediate;
  v.format = problem.format;
  v.activation = problem.activation;
  for (const DirectChoice& choice : {direct_fc1_tile(problem, device), direct_fc2_tile(problem, device)}) {
    v.kind = choice.kind;
    v.tile = choice.tile;
    if (v.is_direct() && direct_shared_bytes(v, problem.shape.topk) > device.shared_optin_bytes) return false;
  }
  return problem.dtype == DType::bf16;
}

/// Why the wgmma family cannot serve a problem on a device; "" where it can.
std::string wgmma_obstacle(const Problem& problem, const DeviceSpec& device) {
  if (device.arch != Arch::sm_90a) return fmt::format("it needs sm_90a, not {}", to_string(device.arch));
  if (!wgmma_serves(problem.format, problem.dtype)) {
    return fmt::format("it needs bf16 and scales that go on the weight, not {} with {}", to_string(problem.dtype), to_string(problem.format));
  }
  const WeightLayout w{problem.shape, problem.format, is_gated(problem.activation), problem.has_bias};
  if (const i64 strips = std::min(w.fc1().strips(), w.fc2().strips()); strips < kWgmmaMinStrips) {
    return fmt::format("its tiles are {} rows high, a matrix has {}", kWgmmaMinStrips * kStripRows, strips * kStripRows);
  }
  const ScratchLayout scratch{problem.shape, problem.dtype, 0};
  if (!wgmma_reaches(problem.shape.max_tokens, problem.shape.hidden, dtype_bytes(problem.dtype)) ||
      !wgmma_reaches(problem.shape.pairs(problem.shape.max_tokens), scratch.h_stride_elems(), dtype_bytes(scratch.h_dtype()))) {
    return fmt::format("it gathers from 64 GiB at most, less than {} tokens can take", problem.shape.max_tokens);
  }
  Variant v;
  v.format = problem.format;
  for (const WgmmaChoice& choice : kWgmmaTiles) {
    if (Result<FittedWgmmaTile> fitted = fit_tile(choice.tile, v, device); !fitted) return fitted.error().message;
  }
  return {};
}

/// What the ladder is cut by.
struct Choices {
  const TileRule* block = nullptr;  ///< pinned block width
  bool direct = true;               ///< direct kernels allowed
  bool wgmma = false;               ///< the wgmma family serves and may be picked
  bool portable = true;             ///< the portable family may be picked
  bool split_k = true;              ///< tiles that share K between warps may be picked
};

/// The rules that may be picked, ascending.
std::vector<const TileRule*> rules_of(const Choices& choices) {
  std::vector<const TileRule*> rules;
  if (choices.block != nullptr) return {choices.block};
  if (choices.wgmma) {
    for (const TileRule& rule : kWgmmaRules) {
      if (choices.portable || rule.family == Family::wgmma) rules.push_back(&rule);
    }
  } else {
    for (const TileRule& rule : kPortableRules) rules.push_back(&rule);
  }
  return rules;
}

/// Fewest tokens whose routes the parallel routing kernels sort.
i64 parallel_from(const Shape& shape) { return ceil_div(kParallelRoutePairs, shape.topk); }

bool is_parallel(const Rung& rung, const Shape& shape) { return rung.needs_route() && rung.first_tokens >= parallel_from(shape); }

/// Most tokens whose CTAs find their blocks in the ids themselves; 0 where none may. Where routes are many for the experts they
/// share blocks, and many of the CTAs, one per route and tile, would find nothing to do.
i64 self_routed_tokens(const Problem& problem, const Choices& choices) {
  if (!choices.direct || !choices.portable || choices.block != nullptr || problem.dtype != DType::bf16) return 0;
  return std::min(kSelfRoutedPairs, problem.shape.experts / 2) / problem.shape.topk;
}

/// Tiles of a rung of the portable family.
std::array<const TileChoice*, 2> tiles_of(const Problem& problem, const DeviceSpec& device, const Rung& rung, bool split_k) {
  const auto choose = [&](KernelKind kind) {
    return rung.self_routed ? &choose_self_routed_tile(problem, device, kind, *rung.rule, rung.first_tokens)
                            : &choose_tile(problem, device, kind, *rung.rule, rung.first_tokens, split_k);
  };
  return {choose(KernelKind::fc1), choose(KernelKind::fc2)};
}

/// Whether the same kernels serve the next rung.
bool continues(const Problem& problem, const DeviceSpec& device, const Rung& rung, const Rung& next, bool split_k) {
  if (rung.direct || rung.rule != next.rule || rung.self_routed != next.self_routed) return false;
  if (is_parallel(rung, problem.shape) != is_parallel(next, problem.shape)) return false;
  return rung.rule->family == Family::wgmma || tiles_of(problem, device, rung, split_k) == tiles_of(problem, device, next, split_k);
}

/// Cuts 1..tokens into rungs, ascending and without gaps: where the block width changes, where a tile does, and where routing
/// becomes parallel.
std::vector<Rung> ladder(const Problem& problem, const DeviceSpec& device, i64 tokens, const Choices& choices) {
  const Shape& shape = problem.shape;
  std::vector<Rung> rungs;
  if (tokens == 0) return rungs;
  i64 first = 1;
  if (choices.direct && choices.portable && choices.block == nullptr && serves_direct(problem, device)) {
    rungs.push_back(Rung{&kPortableRules[0], 1, 1, true});
    first = 2;
  }
  const i64 last_self_routed = std::min(self_routed_tokens(problem, choices), tokens);
  const std::vector<const TileRule*> rules = rules_of(choices);
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const i64 last = choices.block != nullptr ? tokens : std::min(last_tokens_of(*rules[r], shape), tokens);
    // Of the portable rule before the wgmma family's, w16 takes what fills it.
    const bool is_portable = rules[r]->family == Family::portable;
    const TileRule* above = is_portable && r + 1 < rules.size() && rules[r + 1]->family == Family::wgmma ? rules[r + 1] : nullptr;
    // Tiles change token by token until every expert may be touched.
    const i64 stepped = !is_portable ? 0 : above != nullptr ? last : std::max(last_self_routed, ceil_div(shape.experts, shape.topk));
    while (first <= last) {
      Rung rung{rules[r], first, first};
      if (above != nullptr && wgmma_fills(problem, device, first, first <= last_self_routed)) {
        rung.rule = above;
      } else {
        rung.self_routed = is_portable && first <= last_self_routed;
      }
      if (first > stepped) rung.last_tokens = first < parallel_from(shape) ? std::min(last, parallel_from(shape) - 1) : last;
      if (!rungs.empty() && continues(problem, device, rungs.back(), rung, choices.split_k)) {
        rungs.back().last_tokens = rung.last_tokens;
      } else {
        rungs.push_back(rung);
      }
      first = rung.last_tokens + 1;
    }
  }
  return rungs;
}

/// The tile of a rule of the wgmma family.
const WgmmaTile& wgmma_tile(std::string_view pin) {
  const auto found = std::find_if(kWgmmaTiles.begin(), kWgmmaTiles.end(), [pin](const WgmmaChoice& c) { return c.pin == pin; });
  return found->tile;  // every rule has one: tested
}

/// Routes per block under a rule: one width for all its tiles.
i64 block_rows_of(const TileRule& rule) {
  if (rule.family == Family::wgmma) return wgmma_tile(rule.pin).max_width();
  for (const TileChoice& c : kPortableTiles) {
    if (c.pin == rule.pin) return c.tile.block_rows;
  }
  return 0;
}

/// Scratch of a launch sequence of at most `tokens` tokens: the largest need over its rungs.
ScratchLayout scratch_for(const Problem& problem, const DeviceSpec& device, i64 tokens, const Choices& choices) {
  ScratchLayout scratch;
  scratch.shape = problem.shape;
  scratch.shape.max_tokens = tokens;
  scratch.dtype = problem.dtype;
  bool routed = false;
  for (const Rung& rung : ladder(problem, device, tokens, choices)) {
    const RouteLayout route{rung.last_tokens, problem.shape.topk, problem.shape.experts, block_rows_of(*rung.rule)};
    scratch.max_blocks = std::max(scratch.max_blocks, route.max_blocks());
    routed = routed || !rung.direct;
  }
  scratch.routed = routed || tokens == 0;
  return scratch;
}

/// Most tokens whose scratch stays within the cap: the need grows with the tokens, so bisection finds them.
Result<i64> tokens_under_cap(const Problem& problem, const DeviceSpec& device, i64 cap_bytes, const Choices& choices) {
  const i64 tokens = problem.shape.max_tokens;
  if (cap_bytes < 0) return invalid_argument("scratch cap {}: must be 0 (none) or a number of bytes", cap_bytes);
  if (cap_bytes == 0 || scratch_for(problem, device, tokens, choices).total_bytes() <= cap_bytes) return tokens;
  i64 fits = 0;
  i64 too_many = tokens;
  while (too_many - fits > 1) {
    const i64 middle = fits + (too_many - fits) / 2;
    (scratch_for(problem, device, middle, choices).total_bytes() <= cap_bytes ? fits : too_many) = middle;
  }
  if (fits > 0) return fits;
  const i64 least = std::min<i64>(tokens, 1);
  return unsupported("scratch cap {}: {} token(s) at a time need {} bytes", cap_bytes, least,
                     scratch_for(problem, device, least, choices).total_bytes());
}

/// Index of an equal kernel, or of this one appended.
int add_kernel(Plan& plan, PlannedKernel kernel) {
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    if (plan.kernels[i].variant == kernel.variant) return static_cast<int>(i);
  }
  plan.kernels.push_back(std::move(kernel));
  return static_cast<int>(plan.kernels.size()) - 1;
}

int add_small_kernel(Plan& plan, KernelKind kind, std::string name, std::string reason) {
  Variant v;
  v.kind = kind;
  v.arch = plan.device.arch;
  if (kind == KernelKind::combine) v.dtype = plan.problem.dtype;
  return add_kernel(plan, PlannedKernel{std::move(name), v, std::move(reason)});
}

/// What every GEMM kernel of this problem has, whatever its tile.
Variant gemm_variant(const Plan& plan, KernelKind kind) {
  const Problem& p = plan.problem;
  Variant v;
  v.kind = kind;
  v.arch = plan.device.arch;
  v.hidden = p.shape.hidden;
  v.intermediate = p.shape.intermediate;
  v.format = p.format;
  v.dtype = p.dtype;
  v.activation = p.activation;
  if (kind != KernelKind::fc1 && kind != KernelKind::fc1_direct) {  // it computes no activation: only the gating, which the layout depends on, is kept
    v.activation = is_gated(p.activation) ? Activation::silu : Activation::relu2;
  }
  return v;
}

std::string gemm_name(KernelKind kind, std::string_view label) { return fmt::format("{}.{}", kind == KernelKind::fc1 || kind == KernelKind::fc1_direct ? "fc1" : "fc2", label); }

/// A GEMM kernel of the wgmma family.
Result<int> add_wgmma_kernel(Plan& plan, KernelKind kind, const TileRule& rule) {
  Variant v = gemm_variant(plan, kind);
  v.family = Family::wgmma;
  Result<FittedWgmmaTile> fitted = fit_tile(wgmma_tile(rule.pin), v, plan.device);
  if (!fitted) return fitted.error();
  v.wgmma = fitted->tile;
  return add_kernel(plan, PlannedKernel{gemm_name(kind, rule.pin), v, gemm_reason(v, fitted->changes)});
}

/// A GEMM kernel of the portable family; `label` tells tiles of one block width apart.
Result<int> add_gemm_kernel(Plan& plan, KernelKind kind, const GemmTile& wanted, const std::string& label) {
  Variant v = gemm_variant(plan, kind);
  std::string changes;
  if (v.is_direct()) {
    v.tile = wanted;
  } else {
    Result<FittedTile> fitted = fit_tile(wanted, v.matrix(), plan.device);
    if (!fitted) return fitted.error();
    v.tile = fitted->tile;
    changes = fitted->changes;
    const i64 ctas = gemm_grid_x(v, plan.scratch.max_blocks, plan.device.sms);
    if (ctas > kMaxGridX) {
      return unsupported("max_tokens {}: {} CTAs for {} blocks of routes exceed a grid's {} (cap the scratch, so that runs are cut "
                         "into chunks of tokens)",
                         plan.chunk_tokens, ctas, plan.scratch.max_blocks, kMaxGridX);
    }
  }
  return add_kernel(plan, PlannedKernel{gemm_name(kind, label), v, gemm_reason(v, changes)});
}

std::string label_of(const TileChoice& choice) {
  switch (choice.use) {
    case TileUse::few: return fmt::format("{}.few", choice.pin);
    case TileUse::short_k: return fmt::format("{}.short", choice.pin);
    case TileUse::many: break;
  }
  return std::string(choice.pin);
}

Status add_buckets(Plan& plan, const Choices& choices, const std::vector<Rung>& rungs) {
  for (const Rung& rung : rungs) {
    Bucket bucket;
    bucket.first_tokens = rung.first_tokens;
    bucket.last_tokens = rung.last_tokens;
    bucket.block_rows = static_cast<int>(block_rows_of(*rung.rule));
    bucket.direct = rung.direct;
    bucket.self_routed = rung.self_routed;
    bucket.parallel_route = is_parallel(rung, plan.problem.shape);
    Result<int> fc1 = 0, fc2 = 0;
    if (rung.direct) {
      const DirectChoice first = direct_fc1_tile(plan.problem, plan.device);
      const DirectChoice second = direct_fc2_tile(plan.problem, plan.device);
      fc1 = add_gemm_kernel(plan, first.kind, first.tile, "direct");
      if (!fc1) return fc1.error();
      fc2 = add_gemm_kernel(plan, second.kind, second.tile, "direct");
    } else if (rung.rule->family == Family::wgmma) {
      fc1 = add_wgmma_kernel(plan, KernelKind::fc1, *rung.rule);
      if (!fc1) return fc1.error();
      fc2 = add_wgmma_kernel(plan, KernelKind::fc2, *rung.rule);
    } else {
      const auto [first, second] = tiles_of(plan.problem, plan.device, rung, choices.split_k);
      fc1 = add_gemm_kernel(plan, KernelKind::fc1, first->tile, label_of(*first));
      if (!fc1) return fc1.error();
      fc2 = add_gemm_kernel(plan, KernelKind::fc2, second->tile, label_of(*second));
    }
    if (!fc2) return fc2.error();
    bucket.fc1 = *fc1;
    bucket.fc2 = *fc2;
    bucket.reason = rung.direct ? std::string("one token: no routing and no combine kernel, FC2 takes all its experts at once")
                    : rung.self_routed
                        ? fmt::format("at most {} routes and half as many as experts: FC1 and FC2 find their blocks in the ids, no routing kernel",
                                      kSelfRoutedPairs)
                        : bucket_reason(plan.problem.shape, bucket, *rung.rule, rules_of(choices), choices.block != nullptr);
    plan.buckets.push_back(std::move(bucket));
  }
  return {};
}

struct RegionText {
  Region region;
  const char* name;
  const char* lifetime;
};

constexpr RegionText kRegions[kRegionCount] = {
    {Region::control, "control", "init .. always"},       {Region::counts, "counts", "route .. fc2"},
    {Region::chunk_counts, "chunk_counts", "route"},
    {Region::sorted_pairs, "sorted_pairs", "route .. fc2"}, {Region::blocks, "blocks", "route .. fc2"},
    {Region::h_amax, "h_amax", "route .. fc2"},           {Region::h, "h", "fc1 .. fc2"},
    {Region::route_rows, "route_rows", "fc2 .. combine"},
};

void add_regions(Plan& plan) {
  for (const RegionText& text : kRegions) {
    const RegionSpan span = plan.scratch.span(text.region);
    if (span.bytes > 0) {
      plan.regions.push_back(PlannedRegion{text.name, text.region, span.offset_bytes, span.bytes, text.lifetime});
    }
  }
}

}  // namespace

const Bucket& Plan::bucket_for(i64 tokens) const {
  static const Bucket none;
  if (buckets.empty()) return none;
  const auto it = std::partition_point(buckets.begin(), buckets.end(), [tokens](const Bucket& b) { return b.last_tokens < tokens; });
  return it == buckets.end() ? buckets.back() : *it;
}

std::vector<int> Plan::launched_by(const Bucket& bucket) const {
  if (bucket.direct) return {bucket.fc1, bucket.fc2};
  if (bucket.self_routed) return {bucket.fc1, bucket.fc2, combine};
  if (bucket.parallel_route) return {route_count, route_place, bucket.fc1, bucket.fc2, combine};
  return {route, bucket.fc1, bucket.fc2, combine};
}

Result<Plan> make_plan(const Problem& problem, const DeviceSpec& device, const PlanOptions& options) {
  if (Status s = validate(problem); !s) return s.error();
  if (Status s = check_device(device); !s) return s.error();
  Result<Pins> pins = parse_pins(options.pins);
  if (!pins) return pins.error();
  const std::string obstacle = wgmma_obstacle(problem, device);
  if (!obstacle.empty() && (!pins->portable || (pins->block != nullptr && pins->block->family == Family::wgmma))) {
    return unsupported("pins {}: the {} family does not serve this: {}", fmt::join(options.pins, ", "), kWgmmaFamily, obstacle);
  }
  Choices choices{pins->block, !pins->no_direct, pins->wgmma && obstacle.empty(), pins->portable, true};
  if (pins->batch_invariant) {  // one family for every m, K summed in ascending order by one warp
    choices.direct = false;
    choices.split_k = false;
    if (choices.wgmma && (pins->block == nullptr || pins->block->family == Family::wgmma)) choices.portable = false;
  }
  Result<i64> chunk = tokens_under_cap(problem, device, options.scratch_cap_bytes, choices);
  if (!chunk) return chunk.error();

  Plan plan;
  plan.problem = problem;
  plan.device = device;
  plan.options = options;
  plan.weights = WeightLayout{problem.shape, problem.format, is_gated(problem.activation), problem.has_bias};
  plan.chunk_tokens = *chunk;
  plan.scratch = scratch_for(problem, device, *chunk, choices);
  if (plan.chunk_tokens > 0) {
    if (route_shared_bytes(problem.shape.experts) > device.shared_optin_bytes) {
      return unsupported("experts {}: the routing kernel counts them in {} bytes of shared memory, device {} has {} per CTA",
                         problem.shape.experts, route_shared_bytes(problem.shape.experts), device.name,
                         device.shared_optin_bytes);
    }
    if (const i64 ctas = combine_grid_x(problem.shape.hidden, plan.chunk_tokens); ctas > kMaxGridX) {
      return unsupported("max_tokens {}: {} CTAs of the combine kernel exceed a grid's {}", plan.chunk_tokens, ctas, kMaxGridX);
    }
    const bool routed = plan.scratch.routed;
    const std::vector<Rung> rungs = ladder(problem, device, plan.chunk_tokens, choices);
    const auto parallel = [&](const Rung& rung) { return is_parallel(rung, problem.shape); };
    if (std::any_of(rungs.begin(), rungs.end(), [&](const Rung& r) { return r.needs_route() && !parallel(r); })) {
      plan.route = add_small_kernel(plan, KernelKind::route, "route", "one CTA sorts the routes by expert");
    }
    if (std::any_of(rungs.begin(), rungs.end(), parallel)) {
      plan.route_count = add_small_kernel(plan, KernelKind::route_count, "route_count",
                                          fmt::format("from {} routes on: many CTAs count the routes of each expert", kParallelRoutePairs));
      plan.route_place = add_small_kernel(plan, KernelKind::route_place, "route_place", "and place them");
    }
    if (Status s = add_buckets(plan, choices, rungs); !s) return s.error();
    if (routed) plan.combine = add_small_kernel(plan, KernelKind::combine, "combine", "sums the routes of a token in fp32, in route order");
  }
  add_regions(plan);
  plan.notes = plan_notes(plan, obstacle);
  if (pins->no_tail) {
    if (Status s = refuse_tails(plan); !s) return s.error();
  }
  return plan;
}

}  // namespace w4moe
