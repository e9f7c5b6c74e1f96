#include "tools/cli/build_set.hpp"

#include "cache/key.hpp"
#include "generator/compile/compiler.hpp"
#include "generator/manifest/manifest.hpp"
#include "generator/problem/errors.hpp"
#include "generator/render/variant_header.hpp"
#include "runtime/build/kernel_builder.hpp"
#include "runtime/weights/packing_variants.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/problem_source.hpp"

namespace w4moe::cli {
namespace {

Result<std::vector<ManifestEntry>> entries_from(const Options& options) {
  const std::string& file = options.build.manifest;
  if (file.empty()) {
    if (!has_problem(options.problem)) return invalid_argument("nothing to build: give --manifest FILE, or a layer (--model NAME, or its sizes)");
    const Result<Problem> problem = problem_from(options.problem);
    if (!problem) return problem.error();
    const Result<PlanOptions> plan_options = plan_options_from(options.plan);
    if (!plan_options) return plan_options.error();
    return std::vector<ManifestEntry>{{*problem, *plan_options, {}}};
  }
  if (has_problem(options.problem)) return invalid_argument("--manifest and the flags of a layer exclude each other");
  if (!options.plan.pins.empty() || options.plan.batch_invariant || !options.plan.scratch_cap.empty()) {
    return invalid_argument("--manifest and --pin, --batch-invariant or --scratch-cap exclude each other: the manifest's entries have fields for them");
  }
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  Result<Manifest> manifest = parse_manifest(*text, file == "-" ? "standard input" : file);
  if (!manifest) return manifest.error();
  return std::move(manifest->entries);
}

std::vector<std::pair<i64, i64>> tokens_of(const Plan& plan, int kernel) {
  std::vector<std::pair<i64, i64>> ranges;
  for (const Bucket& bucket : plan.buckets) {
    for (const int launched : plan.launched_by(bucket)) {
      if (launched != kernel) continue;
      if (!ranges.empty() && ranges.back().second + 1 == bucket.first_tokens) {
        ranges.back().second = bucket.last_tokens;
      } else {
        ranges.emplace_back(bucket.first_tokens, bucket.last_tokens);
      }
    }
  }
  return ranges;
}

}  // namespace

Result<BuildSet> build_set_from(const Options& options) {
  const Result<std::vector<ManifestEntry>> entries = entries_from(options);
  if (!entries) return entries.error();
  const Result<std::vector<DeviceSpec>> devices = devices_from(options.plan);
  if (!devices) return devices.error();

  // Ordered by what they say, so that the same layers in another order give the same files.
  std::map<std::string, const ManifestEntry*> distinct;
  for (const ManifestEntry& entry : *entries) distinct.emplace(manifest_entry(entry.problem, entry.options), &entry);
  BuildSet set;
  for (const DeviceSpec& device : *devices) {
    for (const auto& [text, entry] : distinct) {
      Result<Plan> plan = make_plan(entry->problem, device, entry->options);
      if (plan) {
        set.plans.push_back(std::move(*plan));
      } else {
        set.failures.push_back({entry->problem.name, entry->where, std::string(to_string(device.arch)), plan.error()});
      }
    }
  }
  return set;
}

std::map<std::string, std::vector<KernelUse>> kernel_uses(const std::vector<Plan>& plans) {
  std::map<std::string, std::vector<KernelUse>> uses;
  for (const Plan& plan : plans) {
    for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
      const PlannedKernel& kernel = plan.kernels[i];
      const std::string key = cache::Key::of_text(kernel_key_text(compile_request(kernel.variant))).hex();
      uses[key].push_back({plan.problem.name, kernel.name, tokens_of(plan, static_cast<int>(i))});
    }
    for (const Variant& variant : packing_variants(plan.problem.format, plan.device.arch)) {
      const std::string key = cache::Key::of_text(kernel_key_text(compile_request(variant))).hex();
      uses[key].push_back({plan.problem.name, std::string(kind_name(variant.kind)), {}});
    }
  }
  return uses;
}

}  // namespace w4moe::cli
