#include "generator/plan/candidates.hpp"

#include <algorithm>

#include "generator/plan/cost_model.hpp"
#include "generator/plan/pins.hpp"

namespace w4moe {
namespace {

const Variant& variant_at(const Plan& plan, int index) { return plan.kernels[static_cast<std::size_t>(index)].variant; }

bool same_gemms(const Plan& a, const Bucket& x, const Plan& b, const Bucket& y) {
  return x.direct == y.direct && x.self_routed == y.self_routed && variant_at(a, x.fc1) == variant_at(b, y.fc1) && variant_at(a, x.fc2) == variant_at(b, y.fc2);
}

/// No pin forces these: no-direct rules them out.
bool without_route(const Bucket& b) { return b.direct || b.self_routed; }

struct Alternative {
  std::string name;
  std::string pin;
  Plan plan;
};

/// The plan under each pin that fixes the block width, where there is one.
std::vector<Alternative> alternatives(const Plan& plan) {
  Problem problem = plan.problem;
  problem.shape.max_tokens = plan.chunk_tokens;
  std::vector<std::string> base;  // what every candidate has to keep to
  if (is_batch_invariant(plan)) base.emplace_back(kBatchInvariantPin);
  std::vector<Alternative> all;
  const auto add = [&](std::string name, std::string pin, const PlanOptions& options) {
    if (Result<Plan> made = make_plan(problem, plan.device, options)) all.push_back({std::move(name), std::move(pin), std::move(*made)});
  };
  add("direct", "", PlanOptions{plan.options.pins, 0});
  if (!all.empty() && std::ranges::none_of(all.back().plan.buckets, without_route)) all.pop_back();
  for (const std::string& pin : known_pins()) {
    const Result<Pins> parsed = parse_pins({pin});
    if (!parsed || parsed->block == nullptr) continue;
    PlanOptions options{base, 0};
    options.pins.push_back(pin);
    add(pin, pin, options);
  }
  return all;
}

}  // namespace

bool is_batch_invariant(const Plan& plan) {
  return std::find(plan.options.pins.begin(), plan.options.pins.end(), kBatchInvariantPin) != plan.options.pins.end();
}

std::vector<InvarianceCost> invariance_costs(const Plan& plan) {
  std::vector<InvarianceCost> costs;
  if (!is_batch_invariant(plan) || costs_for(plan.device) == nullptr) return costs;
  PlanOptions free = plan.options;
  free.pins.erase(std::remove(free.pins.begin(), free.pins.end(), kBatchInvariantPin), free.pins.end());
  const Result<Plan> other = make_plan(plan.problem, plan.device, free);
  if (!other) return costs;
  for (const i64 tokens : {1, 2, 8, 32, 128, 512, 2048, 8192}) {
    if (tokens > std::min(plan.chunk_tokens, other->chunk_tokens)) break;
    const std::optional<double> with = predict_us(plan, plan.bucket_for(tokens), tokens);
    const std::optional<double> without = predict_us(*other, other->bucket_for(tokens), tokens);
    if (with && without) costs.push_back({tokens, *with, *without});
  }
  return costs;
}

std::vector<std::vector<Candidate>> candidates_of(const Plan& plan) {
  std::vector<std::vector<Candidate>> lists(plan.buckets.size());
  if (plan.buckets.empty() || costs_for(plan.device) == nullptr) return lists;
  const std::vector<Alternative> all = alternatives(plan);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    for (const Alternative& a : all) {
      const Bucket& first = a.plan.bucket_for(bucket.first_tokens);
      if (a.pin.empty() && !(without_route(first) && bucket.last_tokens == first.last_tokens)) continue;
      const Bucket& last = a.plan.bucket_for(bucket.last_tokens);
      Candidate c{first.self_routed ? "self-routed" : a.name, a.pin, predict_us(a.plan, first, bucket.first_tokens), predict_us(a.plan, last, bucket.last_tokens),
                  same_gemms(plan, bucket, a.plan, first)};
      lists[i].push_back(std::move(c));
    }
  }
  return lists;
}

}  // namespace w4moe
