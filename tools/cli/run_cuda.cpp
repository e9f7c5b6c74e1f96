#include <algorithm>
#include <chrono>

#include "generator/problem/errors.hpp"
#include "runtime/driver/current_device.hpp"
#include "runtime/driver/device_memory.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/packed_source.hpp"
#include "tools/cli/problem_source.hpp"
#include "tools/cli/run_layer.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::cli {
namespace {

using driver::DeviceBuffer;

/// Memory on the device with these bytes in it; at least one byte, so that there is a pointer.
Result<DeviceBuffer> upload(const driver::DriverTable& table, const void* data, i64 bytes) {
  Result<DeviceBuffer> buffer = DeviceBuffer::allocate(table, bytes > 0 ? bytes : 16);
  if (!buffer) return buffer.error();
  if (bytes > 0) {
    if (Status s = buffer->upload(data, bytes); !s) return s.error();
  }
  return buffer;
}

/// Bytes of `rows` rows, the last one ending with its elements.
i64 extent_bytes(i64 rows, i64 row_elems, i64 apart_elems, i64 element_bytes) {
  return rows == 0 ? 0 : ((rows - 1) * apart_elems + row_elems) * element_bytes;
}

struct DeviceTensors {
  DeviceBuffer x, ids, router, out;
  RunArgs args;
};

Result<DeviceTensors> upload_inputs(const driver::DriverTable& table, const Problem& problem, const MoeInputs& in) {
  const Shape& shape = problem.shape;
  DeviceTensors t;
  Result<DeviceBuffer> x = upload(table, in.x, extent_bytes(in.tokens, shape.hidden, in.x_row_stride_elems, dtype_bytes(problem.dtype)));
  if (!x) return x.error();
  Result<DeviceBuffer> ids = upload(table, in.ids, extent_bytes(in.tokens, shape.topk, in.ids_row_stride_elems, id_type_bytes(in.id_type)));
  if (!ids) return ids.error();
  Result<DeviceBuffer> router =
      upload(table, in.router_weights, extent_bytes(in.tokens, shape.topk, in.router_row_stride_elems, dtype_bytes(in.router_dtype)));
  if (!router) return router.error();
  Result<DeviceBuffer> out = upload(table, nullptr, 0);
  if (in.tokens > 0) out = DeviceBuffer::allocate(table, extent_bytes(in.tokens, shape.hidden, shape.hidden, dtype_bytes(problem.dtype)));
  if (!out) return out.error();
  t.x = std::move(*x);
  t.ids = std::move(*ids);
  t.router = std::move(*router);
  t.out = std::move(*out);
  t.args.tokens = in.tokens;
  t.args.x = t.x.data();
  t.args.x_row_stride_elems = in.x_row_stride_elems;
  t.args.ids = t.ids.data();
  t.args.id_type = in.id_type;
  t.args.ids_row_stride_elems = in.ids_row_stride_elems;
  t.args.router_weights = t.router.data();
  t.args.router_dtype = in.router_dtype;
  t.args.router_row_stride_elems = in.router_row_stride_elems;
  t.args.out = t.out.data();
  return t;
}

Result<Plan> plan_for(const Engine& engine, const Problem& problem, int ordinal, const PlanFlags& flags) {
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

std::string launched_kernels(const Plan& plan, i64 tokens) {
  if (tokens == 0) return "none";
  std::string text;
  for (const int index : plan.launched_by(plan.bucket_for(std::min(tokens, plan.chunk_tokens)))) {
    text += (text.empty() ? "" : " + ") + plan.kernels[static_cast<std::size_t>(index)].name;
  }
  return text;
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
  const Result<Plan> plan = plan_for(*engine, *call.problem, ordinal, flags);
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
