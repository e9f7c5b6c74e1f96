// Predicted times: rates of a device, fitted to measurements (tools/bench/fit_costs.py) and kept as data (costs/*.json,
// costs/README.md has the schema), times the work that the planner counts. A prediction informs; whether it also picks kernels is
// docs/decisions/0005-cost-model.md's to say.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "generator/plan/kernel_work.hpp"
#include "w4moe/plan.hpp"

namespace w4moe {

/// Rates of one kind of GEMM kernel in one family on one class of formats.
struct KernelCosts {
  double launch_us = 0;       ///< from the end of the kernel before to the first byte, and the drain at the end
  double bytes_per_us = 1;    ///< weights and outputs, from and to memory
  double reread_share = 0;    ///< cost of a byte read again for a further block, in bytes from memory
  double visit_ns = 0;        ///< of an SM, per packed unit and block: unpacking
  double column_ns = 0;       ///< of an SM, per unit and eight columns: multiplying
  double item_ns = 0;         ///< of an SM, per item: prologue and epilogue
  double output_ns_per_kb = 0;///< of the device, per 1000 bytes of output, where the epilogue is not hidden
  double step_ns = 0;         ///< of one step of an item's K loop, however little there is to do
  double tail_share = 0;      ///< of the time of a device's worth of items, lost at the end
};

/// A launch whose time is linear in one count: routing in routes, combine in bytes read.
struct LinearCosts {
  double launch_us = 0;
  double ns_per_unit = 0;
};

struct CostModel {
  std::string device;         ///< the GPU that was measured
  Arch arch = Arch::sm_90a;
  int sms = 0;
  std::string source;         ///< the file of measurements
  std::map<std::string, KernelCosts, std::less<>> kernels;  ///< by cost_key()
  std::map<std::string, LinearCosts, std::less<>> launches;  ///< "route", "route_parallel", "combine"
  double direct_overlap_us = 0;   ///< what the two launches of a single token save against their sum, each measured alone
  double routed_share = 1;        ///< time of a routed layer over the sum of its launches, each measured alone
};

/// Reads a file of costs; errors name the field.
Result<CostModel> parse_costs(std::string_view json);

/// The costs measured on parts like this device: the same target. Null where none were.
const CostModel* costs_for(const DeviceSpec& device);

/// "fc1.wgmma.nvfp4": kind, family, class of format and dtype.
std::string cost_key(const Variant& v);

/// Microseconds of one kernel; no value where the model has no such kernel.
std::optional<double> kernel_us(const CostModel& model, const Variant& v, const KernelWork& work);

/// Time of work at given rates. Bytes, arithmetic and the chain of an item's steps overlap; the longest of the three counts, and
/// near a tie some of the others.
double kernel_us(const KernelCosts& costs, const KernelWork& work);

/// Microseconds of a whole layer with these GEMM kernels at `tokens` tokens: routing unless `self_routed`, FC1, FC2, combine;
/// direct kernels only themselves. No value where a kernel has no costs.
std::optional<double> layer_us(const CostModel& model, const Variant& fc1, const Variant& fc2, const Shape& shape, const DeviceSpec& device,
                               i64 tokens, bool direct, bool self_routed);

/// The same for a planned bucket.
std::optional<double> predict_us(const Plan& plan, const Bucket& bucket, i64 tokens);

}  // namespace w4moe
