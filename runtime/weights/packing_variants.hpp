// The kernels that prepare weights on the GPU. No plan lists them: they serve every shape of a format.
#pragma once

#include <array>

#include "contract/variant.h"

namespace w4moe {

/// Variants of a scan and a pack kernel, in this order.
inline std::array<Variant, 2> packing_variants(const QuantFormat& format, Arch arch) {
  Variant scan;
  scan.kind = KernelKind::scan;
  scan.arch = arch;
  scan.format = format;
  Variant pack = scan;
  pack.kind = KernelKind::pack;
  return {scan, pack};
}

}  // namespace w4moe
