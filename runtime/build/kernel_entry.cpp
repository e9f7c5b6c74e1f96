#include "runtime/build/kernel_entry.hpp"

#include <nlohmann/json.hpp>

namespace w4moe {
namespace {

using nlohmann::json;

/// Dynamic shared memory in the layer of the wish; where that decides and there is none, what does not depend on it.
std::int64_t shared_bytes(const KernelWish& wish) {
  return wish.plan == nullptr ? wish.variant.shared_bytes() : kernel_shared_bytes(wish.variant, wish.plan->problem.shape);
}

// Metadata is advice: whatever is wrong with it, the kernel is not.
std::int64_t spill_bytes(const CubinKernel& kernel, const std::string& metadata) {
  if (kernel.spill_source != SpillSource::unknown) return kernel.spill_bytes;
  const json parsed = json::parse(metadata, nullptr, false);
  if (!parsed.is_object()) return 0;
  const auto it = parsed.find("spill_bytes");
  return it != parsed.end() && it->is_number_integer() ? it->get<std::int64_t>() : 0;
}

}  // namespace

cache::Entry kernel_entry(const CompileRequest& request, const std::string& key_text, const KernelWish& wish,
                          const CompiledKernel& compiled) {
  json metadata = {
      {"name", wish.name},
      {"description", request.source.description},
      {"entry", request.source.entry_name},
      {"arch", to_string(wish.variant.arch)},
      {"nvrtc", compiled.nvrtc_version},
      {"compile_ms", compiled.compile_ms},
      {"log", compiled.log},
  };
  if (const CubinKernel* kernel = compiled.facts.kernel(request.source.entry_name)) {
    metadata["registers"] = kernel->registers;
    metadata["spill_bytes"] = kernel->spill_bytes;
    metadata["stack_bytes"] = kernel->stack_bytes;
    metadata["smem_bytes"] = shared_bytes(wish) + kernel->static_shared_bytes;
  }
  return cache::make_entry(compiled.cubin.data(), compiled.cubin.size(), key_text, compiled.nvrtc_version,
                           metadata.dump(2, ' ', false, json::error_handler_t::replace));
}

KernelReport kernel_report(const CompileRequest& request, const KernelWish& wish, const CubinInfo& info,
                           const cache::Entry& entry) {
  KernelReport report;
  report.key = entry.key().hex();
  report.name = wish.name;
  report.arch = info.arch();
  report.builder = entry.builder;
  report.description = request.source.description;
  if (const CubinKernel* kernel = info.kernel(request.source.entry_name)) {
    report.registers = kernel->registers;
    report.spill_bytes = spill_bytes(*kernel, entry.metadata);
    report.smem_bytes = shared_bytes(wish) + kernel->static_shared_bytes;
  }
  return report;
}

}  // namespace w4moe
