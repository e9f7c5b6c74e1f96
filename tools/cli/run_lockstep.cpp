#include "tools/cli/run_layer.hpp"

#include "generator/problem/errors.hpp"

#if __has_include("runtime/lockstep/engine.hpp")

#include <chrono>
#include <memory>

#include "runtime/lockstep/engine.hpp"
#include "tools/cli/packed_source.hpp"

namespace w4moe::cli {
namespace {

double since(std::chrono::steady_clock::time_point start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

/// Host memory that begins where scratch may begin.
class AlignedBytes {
 public:
  explicit AlignedBytes(i64 bytes) : bytes_(::operator new(static_cast<std::size_t>(bytes), kAlign)) {}
  ~AlignedBytes() { ::operator delete(bytes_, kAlign); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  void* data() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlign{static_cast<std::size_t>(kScratchAlignBytes)};
  void* bytes_;
};

RunArgs run_args(const MoeInputs& in, void* out) {
  RunArgs args;
  args.tokens = in.tokens;
  args.x = in.x;
  args.x_row_stride_elems = in.x_row_stride_elems;
  args.ids = in.ids;
  args.id_type = in.id_type;
  args.ids_row_stride_elems = in.ids_row_stride_elems;
  args.router_weights = in.router_weights;
  args.router_dtype = in.router_dtype;
  args.router_row_stride_elems = in.router_row_stride_elems;
  args.out = out;
  return args;
}

}  // namespace

Result<LayerRun> run_on_lockstep(const LayerCall& call, const Plan& plan) {
  LayerRun run;
  run.variant = launched_kernels(plan, call.inputs->tokens);
  run.scratch_bytes = plan.required_bytes();
  auto start = std::chrono::steady_clock::now();
  const Result<PreparedBytes> prepared = PreparedBytes::pack(*call.problem, *call.source);
  if (!prepared) return prepared.error();
  run.prepared_weight_bytes = static_cast<i64>(prepared->bytes().size());
  lockstep::LockstepEngine engine;
  if (Status s = engine.build(plan); !s) return s.error();
  const Result<PreparedWeights> weights = lockstep::LockstepEngine::adopt(prepared->bytes().data(), run.prepared_weight_bytes);
  if (!weights) return weights.error();
  const AlignedBytes scratch(run.scratch_bytes);
  if (Status s = lockstep::LockstepEngine::init_scratch(plan, scratch.data(), run.scratch_bytes); !s) return s.error();
  run.prepare_seconds = since(start);

  start = std::chrono::steady_clock::now();
  run.out.resize(static_cast<std::size_t>(call.inputs->tokens * call.problem->shape.hidden));
  if (Status s = engine.run(plan, *weights, scratch.data(), run.scratch_bytes, run_args(*call.inputs, run.out.data())); !s) return s.error();
  run.seconds = since(start);
  return run;
}

}  // namespace w4moe::cli

#else

namespace w4moe::cli {

Result<LayerRun> run_on_lockstep(const LayerCall&, const Plan&) {
  return unsupported("--device lockstep is not available in this build (accepted: cuda:N, cpu)");
}

}  // namespace w4moe::cli

#endif
