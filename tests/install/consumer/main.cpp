// Plans one layer with nothing but installed headers and the installed library, and prints what it found.
#include <cstdio>
#include <iostream>

#include <w4moe/plan.hpp>

int main() {
  w4moe::Problem problem;
  problem.name = "consumer";
  problem.shape.hidden = 512;
  problem.shape.intermediate = 256;
  problem.shape.experts = 8;
  problem.shape.topk = 2;
  problem.shape.max_tokens = 64;

  const auto arch = w4moe::parse_arch("sm_90a");
  if (!arch) return std::cerr << arch.error().message << '\n', 1;
  const auto plan = w4moe::make_plan(problem, w4moe::named_device(*arch));
  if (!plan) return std::cerr << plan.error().message << '\n', 1;
  std::printf("%zu kernels, %lld bytes of scratch\n", plan->kernels.size(), static_cast<long long>(plan->required_bytes()));

  problem.shape.experts = 0;
  const auto refused = w4moe::make_plan(problem, w4moe::named_device(*arch));
  return refused.ok() ? 1 : 0;
}
