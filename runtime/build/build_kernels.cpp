#include <chrono>
#include <filesystem>
#include <system_error>

#include "generator/render/variant_header.hpp"
#include "runtime/build/kernel_builder.hpp"
#include "runtime/build/report.hpp"
#include "runtime/guarded.hpp"
#include "runtime/weights/packing_variants.hpp"

namespace w4moe {

std::vector<KernelWish> kernel_wishes(std::span<const Plan> plans) {
  std::vector<KernelWish> wishes;
  for (const Plan& plan : plans) {
    for (const PlannedKernel& kernel : plan.kernels) wishes.push_back(KernelWish{kernel.variant, kernel.name, &plan});
  }
  return wishes;
}

std::vector<KernelWish> all_wishes(std::span<const Plan> plans) {
  std::vector<KernelWish> wishes = kernel_wishes(plans);
  for (const Plan& plan : plans) {
    for (const Variant& variant : packing_variants(plan.problem.format, plan.device.arch)) {
      wishes.push_back(KernelWish{variant, std::string(kind_name(variant.kind)), &plan});
    }
  }
  return wishes;
}

BuildReport build_report(const std::vector<BuiltKernel>& kernels, double seconds) {
  BuildReport report;
  report.seconds = seconds;
  for (const BuiltKernel& kernel : kernels) {
    report.kernels.push_back(kernel.report);
    if (!kernel.report.error.empty()) {
      ++report.failed;
    } else if (kernel.report.hit) {
      ++report.hits;
    } else if (kernel.cubin) {
      ++report.compiled;
    }
  }
  return report;
}

Result<BuildReport> build_kernels(std::span<const Plan> plans, const KernelOptions& options, const BuildOptions& build) {
  return guarded([&]() -> Result<BuildReport> {
    const auto start = std::chrono::steady_clock::now();
    Result<Config> config = resolve_config(options, process_environment);
    if (!config) return config.error();
    const JitMode jit = config->jit;
    const Logger logger(options.log, config->log);
    KernelBuilder builder(std::move(*config), logger);
    Result<std::vector<BuiltKernel>> kernels = builder.build(all_wishes(plans), jit, build);
    if (!kernels) return kernels.error();
    BuildReport report = build_report(*kernels, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    report.jobs = builder.jobs();
    return report;
  });
}

Result<BuildReport> list_kernels(std::span<const Plan> plans, const KernelOptions& options) {
  return guarded([&]() -> Result<BuildReport> {
    Result<Config> config = resolve_config(options, process_environment);
    if (!config) return config.error();
    // A look writes nothing. A directory that is not there yet is no reason for the read-only mode's warning: it is left out.
    if (std::error_code none; !std::filesystem::exists(config->cache.disk.root, none)) config->cache.disk.root.clear();
    if (config->cache.mode == cache::CacheMode::on) config->cache.mode = cache::CacheMode::readonly;
    const Logger logger(options.log, config->log);
    KernelBuilder builder(std::move(*config), logger);
    return build_report(builder.look_up(all_wishes(plans)), 0);
  });
}

}  // namespace w4moe
