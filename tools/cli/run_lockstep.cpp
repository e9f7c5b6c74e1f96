#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "tools/cli/interrupt.hpp"
#include "tools/cli/run_layer.hpp"
#include "tools/device/launched_kernels.hpp"
#include "tools/device/prepared_bytes.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::cli {
namespace {

double since(std::chrono::steady_clock::time_point start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

/// "Device" memory: host memory that begins where scratch may begin.
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

Result<LayerRun> run_on_lockstep(const LayerCall& call, const Plan& plan, const KernelOptions& kernels) {
  EngineOptions options;
  options.kernels = kernels;
  options.device = EngineDevice::lockstep;
  Result<Engine> engine = Engine::create(std::move(options));
  if (!engine) return engine.error();

  LayerRun run;
  run.device_name = fmt::format("{} SMs of {}", plan.device.sms, to_string(plan.device.arch));
  run.variant = launched_kernels(plan, call.inputs->tokens);
  run.scratch_bytes = plan.required_bytes();
  {
    const InterruptGuard guard;
    LoadOptions load;
    load.cancelled = interrupted;
    if (const Result<BuildReport> built = engine->build(plan, load); !built) return built.error();
  }
  auto start = std::chrono::steady_clock::now();
  const Result<PreparedBytes> prepared = PreparedBytes::pack(*call.problem, *call.source);
  if (!prepared) return prepared.error();
  run.prepared_weight_bytes = static_cast<i64>(prepared->bytes().size());
  const AlignedBytes packed(run.prepared_weight_bytes);  // a block of its own, of the very size
  std::memcpy(packed.data(), prepared->bytes().data(), prepared->bytes().size());
  const Result<PreparedWeights> weights = engine->adopt(packed.data(), run.prepared_weight_bytes);
  if (!weights) return weights.error();
  const AlignedBytes scratch(run.scratch_bytes);
  const Result<Binding> binding = engine->bind(plan, *weights, scratch.data(), run.scratch_bytes);
  if (!binding) return binding.error();
  if (Status s = engine->init_scratch(*binding, nullptr); !s) return s.error();
  run.prepare_seconds = since(start);

  start = std::chrono::steady_clock::now();
  run.out.resize(static_cast<std::size_t>(call.inputs->tokens * call.problem->shape.hidden));
  if (Status s = engine->run(*binding, nullptr, run_args(*call.inputs, run.out.data())); !s) return s.error();
  run.seconds = since(start);
  const Result<BindingStatus> status = engine->status(*binding);
  if (!status) return status.error();
  if (!status->ok()) return Error{ErrorCode::internal, "a kernel reported: " + status->text};
  return run;
}

}  // namespace w4moe::cli
