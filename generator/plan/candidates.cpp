#include "generator/plan/candidates.hpp"

#include "generator/plan/cost_model.hpp"
#include "generator/plan/pins.hpp"

namespace w4moe {
namespace {

const Variant& variant_at(const Plan& plan, int index) { return plan.kernels[static_cast<std::size_t>(index)].variant; }

bool same_gemms(const Plan& a, const Bucket& x, const Plan& b, const Bucket& y) {
  return x.direct == y.direct && variant_at(a, x.fc1) == variant_at(b, y.fc1) && variant_at(a, x.fc2) == variant_at(b, y.fc2);
}

struct Alternative {
  std::string name;
  std::string pin;
  Plan plan;
};

/// The plan under each pin that fixes the block width, where there is one.
std::vector<Alternative> alternatives(const Plan& plan) {
  Problem problem = plan.problem;
  problem.shape.max_tokens = plan.chunk_tokens;
  std::vector<Alternative> all;
  const auto add = [&](std::string name, std::string pin, const PlanOptions& options) {
    if (Result<Plan> made = make_plan(problem, plan.device, options)) all.push_back({std::move(name), std::move(pin), std::move(*made)});
  };
  add("direct", "", PlanOptions{});
  if (!all.empty() && !all.back().plan.buckets.front().direct) all.pop_back();
  for (const std::string& pin : known_pins()) {
    const Result<Pins> parsed = parse_pins({pin});
    if (parsed && parsed->block != nullptr) add(pin, pin, PlanOptions{{pin}, 0});
  }
  return all;
}

}  // namespace

std::vector<std::vector<Candidate>> candidates_of(const Plan& plan) {
  std::vector<std::vector<Candidate>> lists(plan.buckets.size());
  if (plan.buckets.empty() || costs_for(plan.device) == nullptr) return lists;
  const std::vector<Alternative> all = alternatives(plan);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    for (const Alternative& a : all) {
      const Bucket& first = a.plan.bucket_for(bucket.first_tokens);
      if (a.pin.empty() && !(first.direct && bucket.last_tokens == first.last_tokens)) continue;
      const Bucket& last = a.plan.bucket_for(bucket.last_tokens);
      Candidate c{a.name, a.pin, predict_us(a.plan, first, bucket.first_tokens), predict_us(a.plan, last, bucket.last_tokens),
                  same_gemms(plan, bucket, a.plan, first)};
      lists[i].push_back(std::move(c));
    }
  }
  return lists;
}

}  // namespace w4moe
