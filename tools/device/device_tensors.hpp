// A layer's tensors in device memory, for the tools that launch kernels.
#pragma once

#include "runtime/driver/device_memory.hpp"
#include "runtime/reference/moe_inputs.hpp"
#include "w4moe/engine.hpp"

namespace w4moe {

/// Memory on the device with these bytes in it; at least 16, so that there is a pointer.
Result<driver::DeviceBuffer> upload(const driver::DriverTable& table, const void* data, i64 bytes);

struct DeviceTensors {
  driver::DeviceBuffer x, ids, router, out;
  RunArgs args;  ///< points to them
};
Result<DeviceTensors> upload_inputs(const driver::DriverTable& table, const Problem& problem, const MoeInputs& in);

}  // namespace w4moe
