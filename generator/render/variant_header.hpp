// Variant -> the two texts that make a kernel: the header `w4moe_variant.h` and the source that is compiled.
#pragma once

#include <string>
#include <string_view>

#include "contract/variant.h"

namespace w4moe {

/// Name under which kernels include their specialisation.
inline constexpr std::string_view kVariantHeaderName = "w4moe_variant.h";

/// What is compiled for one variant. A function of the variant alone, the same bytes everywhere: it is part of the cache key.
struct KernelSource {
  std::string entry_name;    ///< the kernel's symbol, "w4moe_fc1"
  std::string variant_text;  ///< text of w4moe_variant.h: one constexpr Variant kVariant
  std::string entry_text;    ///< the source file: includes the variant, then kernels/<kind>.cuh
  std::string description;   ///< one line for people: "fc1 sm_90a, H 6144, I 512, ..."
};

KernelSource render(const Variant& variant);

/// "route", "fc1", "fc2", "combine", "pack", "scan": the file below kernels/, and the symbol less its "w4moe_".
std::string_view kind_name(KernelKind kind);

/// "portable", "wgmma".
std::string_view family_name(Family family);

}  // namespace w4moe
