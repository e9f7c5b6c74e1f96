#include <chrono>

#include "runtime/reference/reference.hpp"
#include "tools/cli/packed_source.hpp"
#include "tools/cli/run_layer.hpp"
#include "tools/device/prepared_bytes.hpp"

namespace w4moe::cli {
namespace {

double since(std::chrono::steady_clock::time_point start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

}  // namespace

Result<LayerRun> run_on_cpu(const LayerCall& call, const Plan& plan) {
  LayerRun run;
  run.variant = "reference that rounds as the kernels do";
  run.scratch_bytes = plan.required_bytes();
  auto start = std::chrono::steady_clock::now();
  const Result<PreparedBytes> prepared = PreparedBytes::pack(*call.problem, *call.source);
  if (!prepared) return prepared.error();
  run.prepared_weight_bytes = static_cast<i64>(prepared->bytes().size());
  const Result<PackedSource> packed = packed_source(*call.problem, prepared->bytes(), *call.inputs);
  if (!packed) return packed.error();
  run.prepare_seconds = since(start);

  start = std::chrono::steady_clock::now();
  run.out.resize(static_cast<std::size_t>(call.inputs->tokens * call.problem->shape.hidden));
  ReferenceOptions options;
  options.threads = 0;
  if (Status s = reference_mirror(*call.problem, packed->source, *call.inputs, run.out, options); !s) return s.error();
  run.seconds = since(start);
  return run;
}

}  // namespace w4moe::cli
