// What GPU tests of tails ask of a layer, whatever its kernels.
#pragma once

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "tests/support/device_layer.hpp"

namespace w4moe::test {

/// Runs the layer under three fillings of the scratch's payload; the bits must not change. Returns them.
inline std::vector<u16> run_under_fillings(const DeviceLayer& layer, const DeviceInputs& inputs) {
  std::vector<u16> first;
  for (const u8 filling : {u8{0xff}, u8{0x00}, u8{0x5b}}) {
    const std::vector<u8> payload(static_cast<std::size_t>(layer.scratch.bytes() - kControlBytes), filling);
    gpu_must(layer.scratch.upload(payload.data(), static_cast<i64>(payload.size()), kControlBytes));
    gpu_must(inputs.out.fill(0xff));
    const std::vector<u16> out = layer.run(inputs);
    if (first.empty()) first = out;
    REQUIRE(out == first);
  }
  return first;
}

/// `out` is the mirroring reference bit for bit where the data is exact, else within the numerics contract.
inline void check_outputs(const DeviceLayer& layer, const DeviceInputs& inputs, const std::vector<u16>& out, bool exact) {
  const Problem& problem = layer.plan.problem;
  ReferenceOptions options;
  options.threads = 0;
  options.rounds_route_rows = !layer.plan.bucket_for(inputs.args.tokens).direct;
  std::vector<u16> mirror(out.size());
  gpu_must(reference_mirror(problem, layer.host.source, inputs.host.inputs, mirror, options));
  if (exact) {
    REQUIRE(out == mirror);
    return;
  }
  std::vector<double> fp64(out.size());
  gpu_must(reference_fp64(problem, layer.host.source, inputs.host.inputs, fp64, options));
  const ContractVerdict verdict = check_contract(problem, compare_outputs(problem.dtype, out, fp64, problem.shape.hidden),
                                                 compare_outputs(problem.dtype, mirror, fp64, problem.shape.hidden));
  INFO(verdict.reason);
  REQUIRE(verdict.holds);
}

}  // namespace w4moe::test
