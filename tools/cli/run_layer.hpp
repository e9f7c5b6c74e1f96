// One layer on one device: weights and inputs in host memory, output in host memory.
#pragma once

#include <string>
#include <vector>

#include "runtime/reference/moe_inputs.hpp"
#include "tools/cli/device_choice.hpp"
#include "tools/cli/kernel_source.hpp"
#include "w4moe/engine.hpp"
#include "w4moe/weights.hpp"

namespace w4moe::cli {

struct LayerRun {
  std::string variant;       ///< the kernels that ran, or what stood in for them
  std::string device_name;   ///< "NVIDIA H200"; empty on the CPU
  std::vector<u16> out;      ///< bits of [tokens][H]
  i64 scratch_bytes = 0;
  i64 prepared_weight_bytes = 0;
  double prepare_seconds = 0;
  double seconds = 0;        ///< of the layer itself, weights and kernels being ready
};

struct LayerCall {
  const Problem* problem = nullptr;
  const SourceWeights* source = nullptr;
  const MoeInputs* inputs = nullptr;
};

/// The reference that rounds where kernels round, on weights that were packed and read back. `plan` prices the scratch.
Result<LayerRun> run_on_cpu(const LayerCall& call, const Plan& plan);

/// The kernels themselves, compiled for the host and run on the lock-step device: slow, but what a GPU would compute.
Result<LayerRun> run_on_lockstep(const LayerCall& call, const Plan& plan, const KernelOptions& kernels);

/// The plan for the device of this ordinal; flags.arch and flags.sms, where given, must fit it.
Result<Plan> plan_on_device(const Engine& engine, const Problem& problem, int ordinal, const PlanFlags& flags);

/// The kernels themselves, in the device's primary context. flags.arch and flags.sms, where given, must fit the device.
Result<LayerRun> run_on_cuda(const LayerCall& call, int ordinal, const PlanFlags& flags, const KernelOptions& kernels);

}  // namespace w4moe::cli
