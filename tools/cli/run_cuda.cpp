#include <algorithm>
#include <chrono>

#include "generator/problem/errors.hpp"
#include "runtime/driver/current_device.hpp"
#include "runtime/driver/device_memory.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/problem_source.hpp"
#include "tools/cli/run_layer.hpp"
#include "tools/device/device_tensors.hpp"
#include "tools/device/launched_kernels.hpp"
#include "tools/device/prepared_bytes.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::cli {
namespace {

using driver::DeviceBuffer;

/// Launches twice, so that the time is that of a layer whose kernels are warm; both give the same bits.
Result<double> timed_run(const driver::DriverTable& table, const Engine& engine, const Binding& binding, const RunArgs& args) {
  Result<driver::OwnedStream> stream = driver::OwnedStream::create(table);
  if (!stream) return stream.error();
  if (Status s = engine.init_scratch(binding, stream->handle()); !s) return s.error();
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {
    if (Status s = stream->synchronize(); !s) return s.error();
    const auto start = std::chrono::steady_clock::now();
    if (Status s = engine.run(binding, stream->handle(), args); !s) return s.error();
    if (Status s = stream->synchronize(); !s) return s.error();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  const Result<BindingStatus> status = engine.status(binding);
  if (!status) return status.error();
  if (!status->ok()) return Error{ErrorCode::driver, "a kernel reported: " + status->text};
  return seconds;
}

}  // namespace

Result<Plan> plan_on_device(const Engine& engine, const Problem& problem, int ordinal, const PlanFlags& flags) {
  Result<DeviceSpec> device = engine.device(ordinal);
  if (!device) return device.error();
  for (const std::string& name : flags.archs) {
    const Result<Arch> arch = parse_arch(name);
    if (!arch) return arch.error();
    if (*arch != device->arch) {
      return unsupported("--arch {}: the kernels of device cuda:{} ({}) are those of {}", name, ordinal, device->name, to_string(device->arch));
    }
  }
  if (flags.sms > 0) device->sms = flags.sms;
  const Result<PlanOptions> options = plan_options_from(flags);
  if (!options) return options.error();
  return make_plan(problem, *device, *options);
}

Result<LayerRun> run_on_cuda(const LayerCall& call, int ordinal, const PlanFlags& flags, const KernelOptions& kernels) {
  const Result<const driver::DriverTable*> table = driver::system_driver();
  if (!table) return table.error();
  const Result<driver::PrimaryContext> context = driver::PrimaryContext::open(**table, ordinal);
  if (!context) return context.error();
  EngineOptions engine_options;
  engine_options.kernels = kernels;
  Result<Engine> engine = Engine::create(std::move(engine_options));
  if (!engine) return engine.error();
  const Result<Plan> plan = plan_on_device(*engine, *call.problem, ordinal, flags);
  if (!plan) return plan.error();

  LayerRun run;
  run.device_name = plan->device.name;
  run.variant = launched_kernels(*plan, call.inputs->tokens);
  run.scratch_bytes = plan->required_bytes();
  run.prepared_weight_bytes = plan->prepared_weight_bytes();
  {
    const InterruptGuard guard;
    LoadOptions load;
    load.cancelled = interrupted;
    if (const Result<BuildReport> built = engine->build(*plan, load); !built) return built.error();
  }
  const auto start = std::chrono::steady_clock::now();
  Result<PreparedBytes> prepared = PreparedBytes::pack(*call.problem, *call.source);
  if (!prepared) return prepared.error();
  const Result<DeviceBuffer> weights = upload(**table, prepared->bytes().data(), static_cast<i64>(prepared->bytes().size()));
  if (!weights) return weights.error();
  run.prepare_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Result<PreparedWeights> adopted = engine->adopt(weights->data(), weights->bytes());
  if (!adopted) return adopted.error();
  const Result<DeviceBuffer> scratch = DeviceBuffer::allocate(**table, run.scratch_bytes);
  if (!scratch) return scratch.error();
  const Result<Binding> binding = engine->bind(*plan, *adopted, scratch->data(), scratch->bytes());
  if (!binding) return binding.error();
  const Result<DeviceTensors> tensors = upload_inputs(**table, *call.problem, *call.inputs);
  if (!tensors) return tensors.error();
  const Result<double> seconds = timed_run(**table, *engine, *binding, tensors->args);
  if (!seconds) return seconds.error();
  run.seconds = *seconds;
  run.out.resize(static_cast<std::size_t>(call.inputs->tokens * call.problem->shape.hidden));
  if (!run.out.empty()) {
    if (Status s = tensors->out.download(run.out.data(), static_cast<i64>(run.out.size() * sizeof(u16))); !s) return s.error();
  }
  return run;
}

}  // namespace w4moe::cli
