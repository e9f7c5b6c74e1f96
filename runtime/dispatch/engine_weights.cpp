// Weights: packing on the device, and what was packed before.
#include <array>

#include "generator/problem/errors.hpp"
#include "runtime/dispatch/checks.hpp"
#include "runtime/dispatch/engine_impl.hpp"
#include "runtime/guarded.hpp"
#include "runtime/weights/packing_variants.hpp"

namespace w4moe {
namespace {

/// prepare() where device memory is host memory: the CPU packer's bytes are the bytes.
Result<PreparedWeights> prepare_on_host(const Plan& plan, const SourceWeights& source, void* dest, i64 dest_bytes, StreamHandle stream, const PackOptions& options) {
  if (Status s = check_no_stream(stream); !s) return s.error();
  const i64 bytes = plan.prepared_weight_bytes();
  if (dest_bytes < bytes) return invalid_argument("destination of {} bytes, expected {}", dest_bytes, bytes);
  SourceWeights on_host = source;
  on_host.on_device = false;
  if (Status s = pack_on_cpu(plan.problem, on_host, {static_cast<std::byte*>(dest), static_cast<std::size_t>(bytes)}, options); !s) return s.error();
  return lockstep::LockstepEngine::adopt(dest, bytes);
}

}  // namespace

Result<PackKernels> Engine::Impl::packing_kernels(const driver::DriverTable& table, const driver::CurrentContext& context, const Plan& plan) {
  const QuantFormat& format = plan.problem.format;
  {
    const std::lock_guard lock(mutex);
    for (const PackSlot& slot : pack_slots) {
      if (slot.context_id == context.id && slot.format == format) return slot.kernels;
    }
  }
  const std::array<Variant, 2> variants = packing_variants(format, plan.device.arch);
  const KernelWish wishes[] = {{variants[0], "scan", &plan}, {variants[1], "pack", &plan}};
  const Result<std::vector<BuiltKernel>> built = builder().build(wishes, frozen ? JitMode::off : config.jit, {});
  if (!built) return built.error();
  PackKernels loaded;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const BuiltKernel& kernel = (*built)[i];
    const Result<std::shared_ptr<const KernelLibrary>> library =
        KernelLibrary::load(table, variants[i], *kernel.cubin, kernel.report.builder);
    if (!library) return library.error();
    const Result<std::shared_ptr<const LoadedKernel>> function = resolve_function(*library, context);
    if (!function) return function.error();
    (i == 0 ? loaded.scan : loaded.pack) = *function;
  }
  const std::lock_guard lock(mutex);
  pack_slots.push_back(PackSlot{context.id, format, loaded});
  return loaded;
}

Result<PreparedWeights> Engine::prepare(const Plan& plan, const SourceWeights& source, void* dest, i64 dest_bytes, void* workspace,
                                        i64 workspace_bytes, StreamHandle stream, const PackOptions& options) {
  return guarded([&]() -> Result<PreparedWeights> {
    if (Status s = validate_source(plan.problem, source); !s) return s.error();
    if (impl_->lockstep) return prepare_on_host(plan, source, dest, dest_bytes, stream, options);
    Result<DriverContext> dc = impl_->driver_context();
    if (!dc) return dc.error();
    if (Status s = check_not_capturing(*dc->table, stream); !s) return s.error();
    if (Status s = check_stream(*dc->table, dc->context, stream); !s) return s.error();
    if (Status s = driver::check_runs_on(*dc->table, dc->context.device, plan.device.arch); !s) return s.error();
    if (Status s = check_memory_device(*dc, "the destination", dest); !s) return s.error();
    if (Status s = check_memory_device(*dc, "the workspace", workspace); !s) return s.error();
    const Result<PackKernels> kernels = impl_->packing_kernels(*dc->table, dc->context, plan);
    if (!kernels) return kernels.error();
    const PackMemory memory{device_ptr(dest), dest_bytes, device_ptr(workspace), workspace_bytes};
    if (Status s = pack_on_gpu(*dc->table, *kernels, plan.problem, source, memory, stream, options); !s) return s.error();
    return PreparedWeights{dest, dest_bytes, make_weight_header(plan.weights)};
  });
}

Result<i64> prepare_workspace_bytes(const Problem& problem, const SourceWeights& source) {
  return guarded([&]() -> Result<i64> {
    if (Status s = validate_source(problem, source); !s) return s.error();
    return pack_workspace_bytes(problem, source);
  });
}

Result<PreparedWeights> Engine::adopt(const void* device_data, i64 bytes) const {
  return guarded([&]() -> Result<PreparedWeights> {
    if (impl_->lockstep) return lockstep::LockstepEngine::adopt(device_data, bytes);
    PreparedWeights weights{device_data, bytes, {}};
    if (device_data == nullptr) return invalid_argument("the weights are null");
    if (bytes < static_cast<i64>(sizeof(WeightHeader))) {
      return invalid_argument("{} bytes at {} cannot hold the {}-byte header of prepared weights", bytes, device_data, sizeof(WeightHeader));
    }
    Result<DriverContext> dc = impl_->driver_context();
    if (!dc) return dc.error();
    const driver::Code code = dc->table->memcpy_dtoh(&weights.header, device_ptr(device_data), sizeof(WeightHeader));
    if (code != driver::kSuccess) return driver::driver_error(*dc->table, code, "cuMemcpyDtoH", "reading the header of prepared weights");
    if (Status s = check_header(weights.header, device_data, bytes); !s) return s.error();
    return weights;
  });
}

}  // namespace w4moe
