// Plan a layer, price it and see its kernels: on any machine, without a GPU, a driver or a compiler.
#include <cstdio>

#include "w4moe/build.hpp"
#include "w4moe/plan.hpp"

int main() {
  w4moe::Problem problem;
  problem.name = "my layer";
  problem.shape = {/*hidden=*/2880, /*intermediate=*/2880, /*experts=*/128, /*topk=*/4, /*max_tokens=*/64};
  problem.format = w4moe::kMxfp4;
  problem.activation = w4moe::Activation::swiglu_oai;
  problem.params = w4moe::default_params(problem.activation);
  problem.has_bias = true;

  const auto plan = w4moe::make_plan(problem, w4moe::named_device(w4moe::Arch::sm_90a));
  if (!plan) {
    std::fprintf(stderr, "%s\n", plan.error().message.c_str());
    return 1;
  }
  std::printf("scratch: %lld bytes, prepared weights: %lld bytes\n", plan->required_bytes(), plan->prepared_weight_bytes());

  // What a build would make, and what the cache has already. build_kernels() in its place makes them (it needs NVRTC, no GPU).
  const auto kernels = w4moe::list_kernels({&*plan, 1});
  if (!kernels) {
    std::fprintf(stderr, "%s\n", kernels.error().message.c_str());
    return 1;
  }
  for (const w4moe::KernelReport& kernel : kernels->kernels) {
    std::printf("%.12s  %-10s %s  %s\n", kernel.key.c_str(), kernel.name.c_str(), kernel.arch.c_str(), kernel.hit ? "in the cache" : "not built yet");
  }
  return 0;
}
