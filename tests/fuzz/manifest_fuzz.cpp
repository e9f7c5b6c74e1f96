// libFuzzer entry of the manifest reader. Configure with clang and -DW4MOE_FUZZ=ON -DW4MOE_SANITIZE=address,undefined.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "generator/manifest/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace w4moe;
  const Result<Manifest> m = parse_manifest(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!m) return 0;
  for (const ManifestEntry& e : m->entries) {
    const Result<Plan> plan = make_plan(e.problem, named_device(Arch::sm_90a), e.options);
    if (plan && plan->required_bytes() < kControlBytes) std::abort();
  }
  return 0;
}
