// Which device an engine of the C interface works on.
#pragma once

#include "runtime/capi/handles.hpp"
#include "runtime/driver/current_device.hpp"

namespace w4moe::capi {

/// R02: with W4MOE_DEVICE_CUDA the current context must be on that device. No context is made.
Status check_context(const EngineState& state);

}  // namespace w4moe::capi
