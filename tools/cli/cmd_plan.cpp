#include <fmt/format.h>

#include "generator/plan/explain.hpp"
#include "generator/render/variant_header.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/problem_source.hpp"

namespace w4moe::cli {
namespace {

/// The short form, without reasons.
std::string summary(const Plan& plan) {
  const Shape& s = plan.problem.shape;
  std::string text = fmt::format("{}: H {}, I {}, E {}, top-{}, {}, {}, up to {} tokens on {} ({} SMs)\n", plan.problem.name, s.hidden, s.intermediate,
                                 s.experts, s.topk, to_string(plan.problem.format), to_string(plan.problem.activation), s.max_tokens,
                                 to_string(plan.device.arch), plan.device.sms);
  text += fmt::format("scratch           {} bytes ({:.2f} MiB)\n", plan.required_bytes(), static_cast<double>(plan.required_bytes()) / (1 << 20));
  text += fmt::format("prepared weights  {} bytes ({:.2f} MiB), layout {:016x}\n", plan.prepared_weight_bytes(),
                      static_cast<double>(plan.prepared_weight_bytes()) / (1 << 20), plan.layout());
  text += fmt::format("kernels           {}\n", plan.kernels.size());
  for (const Bucket& bucket : plan.buckets) {
    std::string names;
    for (const int index : plan.launched_by(bucket)) names += (names.empty() ? "" : ", ") + plan.kernels[static_cast<std::size_t>(index)].name;
    text += fmt::format("tokens {:>7} .. {:<7} {}\n", bucket.first_tokens, bucket.last_tokens, names);
  }
  return text;
}

}  // namespace

Result<int> cmd_plan(const Options& options, Console& console) {
  const Result<Plan> plan = plan_from(options);
  if (!plan) return plan.error();
  if (console.json()) {
    console.result(plan_json(*plan) + "\n");
  } else {
    console.result(options.explain ? explain(*plan) : summary(*plan));
  }
  return kDone;
}

}  // namespace w4moe::cli
