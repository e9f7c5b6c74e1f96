// A layer's tensors in device memory, for the verbs that launch kernels.
#pragma once

#include "runtime/driver/device_memory.hpp"
#include "runtime/reference/moe_inputs.hpp"
#include "tools/cli/options.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::cli {

/// Memory on the device with these bytes in it; at least 16, so that there is a pointer.
Result<driver::DeviceBuffer> upload(const driver::DriverTable& table, const void* data, i64 bytes);

struct DeviceTensors {
  driver::DeviceBuffer x, ids, router, out;
  RunArgs args;  ///< points to them
};
Result<DeviceTensors> upload_inputs(const driver::DriverTable& table, const Problem& problem, const MoeInputs& in);

/// The plan for the device of this ordinal; flags.arch and flags.sms, where given, must fit it.
Result<Plan> plan_on_device(const Engine& engine, const Problem& problem, int ordinal, const PlanFlags& flags);

}  // namespace w4moe::cli
