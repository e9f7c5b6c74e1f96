#include "generator/compile/kernel_check.hpp"

#include <optional>

#include <fmt/format.h>

#include "contract/args.h"
#include "generator/render/variant_header.hpp"
#include "packing/pack_args.h"
#include "w4moe/device.hpp"

namespace w4moe {
namespace {

std::uint64_t args_bytes(KernelKind kind) {
  switch (kind) {
    case KernelKind::route:
    case KernelKind::route_count:
    case KernelKind::route_place: return sizeof(RouteArgs);
    case KernelKind::fc1:
    case KernelKind::fc1_direct: return sizeof(Fc1Args);
    case KernelKind::fc2: return sizeof(Fc2Args);
    case KernelKind::fc2_direct: return sizeof(Fc2DirectArgs);
    case KernelKind::combine: return sizeof(CombineArgs);
    case KernelKind::pack: return sizeof(PackArgs);
    case KernelKind::scan: return sizeof(ScanArgs);
  }
  return 0;
}

Error mismatch(std::string what) { return Error{ErrorCode::corrupt, "the cubin does not fit: " + std::move(what)}; }

}  // namespace

Status check_arch(const CubinInfo& info, Arch arch) {
  const std::string wanted(to_string(arch));
  const std::string found = info.arch();
  if (found == wanted || found + "a" == wanted) return {};
  return mismatch(fmt::format("built for {}, wanted {}", found, wanted));
}

std::vector<CubinFact> expected_facts(const Variant& variant) {
  std::vector<CubinFact> facts;
  const auto add = [&](std::string_view name, std::uint64_t value) { facts.push_back({fmt::format("{}{}", kFactPrefix, name), value}); };
  add("args_bytes", args_bytes(variant.kind));
  add("args_version", kArgsVersion);
  add("layout_id", kernel_layout_id(variant.weights()));
  add("shared_bytes", static_cast<std::uint64_t>(variant.shared_bytes()));
  add("threads", static_cast<std::uint64_t>(variant.threads()));
  return facts;
}

Status check_kernel(const CubinInfo& info, const Variant& variant) {
  if (Status s = check_arch(info, variant.arch); !s) return s;
  const std::string name = render(variant).entry_name;
  if (info.kernels.size() != 1 || info.kernels[0].name != name) {
    return mismatch(fmt::format("it holds {} kernels{}, wanted only {}", info.kernels.size(),
                                info.kernels.empty() ? "" : fmt::format(" ({}{})", info.kernels[0].name, info.kernels.size() > 1 ? ", ..." : ""),
                                name));
  }
  const CubinKernel& kernel = info.kernels[0];
  if (kernel.max_threads != 0 && kernel.max_threads < variant.threads())
    return mismatch(fmt::format("{} is bound to {} threads, wanted {}", name, kernel.max_threads, variant.threads()));
  for (const CubinFact& fact : expected_facts(variant)) {
    const std::optional<std::uint64_t> value = info.fact(fact.name);
    if (!value) return mismatch(fmt::format("{} exports no {}", name, fact.name));
    if (*value != fact.value) return mismatch(fmt::format("{} of {} is {}, wanted {}", fact.name, name, *value, fact.value));
  }
  return {};
}

}  // namespace w4moe
