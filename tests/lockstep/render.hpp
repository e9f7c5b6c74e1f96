// The text of one kernel variant, as the lock-step device compiles it.
#pragma once

#include "contract/variant.h"
#include "runtime/lockstep/device.hpp"

namespace w4moe::lockstep {

KernelSource render_variant(const Variant& variant);

}  // namespace w4moe::lockstep
