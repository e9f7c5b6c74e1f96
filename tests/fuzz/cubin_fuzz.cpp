// libFuzzer entry of the ELF reader and the spill log. Configure with clang and -DW4MOE_FUZZ=ON -DW4MOE_SANITIZE=address,undefined.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "generator/compile/cubin_info.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace w4moe;
  Result<CubinInfo> info = read_cubin(std::as_bytes(std::span(data, size)));
  if (!info) return info.error().code == ErrorCode::corrupt && !info.error().message.empty() ? 0 : (std::abort(), 0);
  for (const CubinKernel& kernel : info->kernels) {
    if (info->kernel(kernel.name) == nullptr) std::abort();
  }
  for (const CubinFact& fact : info->facts) {
    if (!info->fact(fact.name)) std::abort();
  }
  (void)info->arch();
  add_spills_from_log(*info, std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
