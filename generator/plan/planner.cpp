// make_plan(): buckets by routes per expert, tiles from the rule table, scratch from the contract. No CUDA call, no state.
#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/plan/fit_tile.hpp"
#include "generator/plan/notes.hpp"
#include "generator/plan/pins.hpp"
#include "generator/plan/rules.hpp"
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
};

/// Largest m whose routes per touched expert stay within the rule. An expert is touched by one route at least, so up to E routes
/// the average is 1; beyond, it is m * topk / E.
i64 last_tokens_of(const TileRule& rule, const Shape& shape) {
  if (rule.max_average_routes == 0) return kMaxTokens;
  return rule.max_average_routes * shape.experts / shape.topk;
}

/// Cuts 1..tokens into rungs, ascending and without gaps.
std::vector<Rung> ladder(const Shape& shape, i64 tokens, const TileRule* pinned) {
  std::vector<Rung> rungs;
  if (tokens == 0) return rungs;
  if (pinned != nullptr) return {Rung{pinned, 1, tokens}};
  i64 first = 1;
  for (const TileRule& rule : kPortableTiles) {
    const i64 last = std::min(last_tokens_of(rule, shape), tokens);
    if (last < first) continue;
    rungs.push_back(Rung{&rule, first, last});
    first = last + 1;
  }
  return rungs;
}

/// Scratch of a launch sequence of at most `tokens` tokens: the largest need over its rungs.
ScratchLayout scratch_for(const Problem& problem, i64 tokens, const TileRule* pinned) {
  ScratchLayout scratch;
  scratch.shape = problem.shape;
  scratch.shape.max_tokens = tokens;
  scratch.dtype = problem.dtype;
  for (const Rung& rung : ladder(problem.shape, tokens, pinned)) {
    const RouteLayout route{rung.last_tokens, problem.shape.topk, problem.shape.experts, rung.rule->tile.block_rows};
    scratch.max_blocks = std::max(scratch.max_blocks, route.max_blocks());
  }
  return scratch;
}

/// Most tokens whose scratch stays within the cap: the need grows with the tokens, so bisection finds them.
Result<i64> tokens_under_cap(const Problem& problem, i64 cap_bytes, const TileRule* pinned) {
  const i64 tokens = problem.shape.max_tokens;
  if (cap_bytes < 0) return invalid_argument("scratch cap {}: must be 0 (none) or a number of bytes", cap_bytes);
  if (cap_bytes == 0 || scratch_for(problem, tokens, pinned).total_bytes() <= cap_bytes) return tokens;
  i64 fits = 0;
  i64 too_many = tokens;
  while (too_many - fits > 1) {
    const i64 middle = fits + (too_many - fits) / 2;
    (scratch_for(problem, middle, pinned).total_bytes() <= cap_bytes ? fits : too_many) = middle;
  }
  if (fits > 0) return fits;
  const i64 least = std::min<i64>(tokens, 1);
  return unsupported("scratch cap {}: {} token(s) at a time need {} bytes", cap_bytes, least,
                     scratch_for(problem, least, pinned).total_bytes());
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

Result<int> add_gemm_kernel(Plan& plan, KernelKind kind, const TileRule& rule) {
  const Problem& p = plan.problem;
  Variant v;
  v.kind = kind;
  v.arch = plan.device.arch;
  v.hidden = p.shape.hidden;
  v.intermediate = p.shape.intermediate;
  v.format = p.format;
  v.dtype = p.dtype;
  v.activation = p.activation;
  if (kind == KernelKind::fc2) {  // it computes no activation: only the gating, which the layout depends on, is kept
    v.activation = is_gated(p.activation) ? Activation::silu : Activation::relu2;
  }
  Result<FittedTile> fitted = fit_tile(rule.tile, v.matrix().strips(), plan.device);
  if (!fitted) return fitted.error();
  v.tile = fitted->tile;
  const i64 ctas = gemm_grid_x(v, plan.scratch.max_blocks);
  if (ctas > kMaxGridX) {
    return unsupported("max_tokens {}: {} CTAs for {} blocks of routes exceed a grid's {} (cap the scratch, so that runs are cut "
                       "into chunks of tokens)",
                       plan.chunk_tokens, ctas, plan.scratch.max_blocks, kMaxGridX);
  }
  const std::string name = fmt::format("{}.{}", kind == KernelKind::fc1 ? "fc1" : "fc2", rule.pin);
  return add_kernel(plan, PlannedKernel{name, v, gemm_reason(v, fitted->changes)});
}

Status add_buckets(Plan& plan, const TileRule* pinned) {
  const std::vector<Rung> rungs = ladder(plan.problem.shape, plan.chunk_tokens, pinned);
  for (const Rung& rung : rungs) {
    Bucket bucket;
    bucket.first_tokens = rung.first_tokens;
    bucket.last_tokens = rung.last_tokens;
    bucket.block_rows = rung.rule->tile.block_rows;
    Result<int> fc1 = add_gemm_kernel(plan, KernelKind::fc1, *rung.rule);
    if (!fc1) return fc1.error();
    Result<int> fc2 = add_gemm_kernel(plan, KernelKind::fc2, *rung.rule);
    if (!fc2) return fc2.error();
    bucket.fc1 = *fc1;
    bucket.fc2 = *fc2;
    bucket.reason = bucket_reason(plan.problem.shape, bucket, *rung.rule, pinned != nullptr);
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

Result<Plan> make_plan(const Problem& problem, const DeviceSpec& device, const PlanOptions& options) {
  if (Status s = validate(problem); !s) return s.error();
  if (Status s = check_device(device); !s) return s.error();
  Result<Pins> pins = parse_pins(options.pins);
  if (!pins) return pins.error();
  Result<i64> chunk = tokens_under_cap(problem, options.scratch_cap_bytes, pins->block);
  if (!chunk) return chunk.error();

  Plan plan;
  plan.problem = problem;
  plan.device = device;
  plan.options = options;
  plan.weights = WeightLayout{problem.shape, problem.format, is_gated(problem.activation), problem.has_bias};
  plan.chunk_tokens = *chunk;
  plan.scratch = scratch_for(problem, *chunk, pins->block);
  if (plan.chunk_tokens > 0) {
    if (route_shared_bytes(problem.shape.experts) > device.shared_optin_bytes) {
      return unsupported("experts {}: the routing kernel counts them in {} bytes of shared memory, device {} has {} per CTA",
                         problem.shape.experts, route_shared_bytes(problem.shape.experts), device.name,
                         device.shared_optin_bytes);
    }
    if (const i64 ctas = combine_grid_x(problem.shape.hidden, plan.chunk_tokens); ctas > kMaxGridX) {
      return unsupported("max_tokens {}: {} CTAs of the combine kernel exceed a grid's {}", plan.chunk_tokens, ctas, kMaxGridX);
    }
    plan.route = add_small_kernel(plan, KernelKind::route, "route", "one CTA sorts the routes by expert, for any m");
    if (Status s = add_buckets(plan, pins->block); !s) return s.error();
    plan.combine = add_small_kernel(plan, KernelKind::combine, "combine", "sums the routes of a token in fp32, in route order");
  }
  add_regions(plan);
  plan.notes = plan_notes(plan);
  if (pins->no_tail) {
    if (Status s = refuse_tails(plan); !s) return s.error();
  }
  return plan;
}

}  // namespace w4moe
