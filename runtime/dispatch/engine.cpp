#include "w4moe/engine.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <sstream>

#include "generator/problem/errors.hpp"
#include "runtime/build/report.hpp"
#include "runtime/dispatch/binding_impl.hpp"
#include "runtime/dispatch/checks.hpp"
#include "runtime/dispatch/chunks.hpp"
#include "runtime/dispatch/stream_context.hpp"
#include "runtime/dispatch/submit.hpp"
#include "runtime/driver/scoped.hpp"
#include "runtime/guarded.hpp"
#include "runtime/lockstep/engine.hpp"
#include "runtime/module/kernel_table.hpp"
#include "runtime/weights/gpu_packer.hpp"
#include "runtime/weights/packing_variants.hpp"

namespace w4moe {

struct Engine::Impl {
  EngineOptions options;
  Config config;
  Logger logger;
  KernelTable kernels;
  ScratchUse scratch_use;
  std::atomic<bool> frozen{false};
  std::unique_ptr<lockstep::LockstepEngine> lockstep;  ///< in place of all that concerns the driver

  std::mutex mutex;
  std::unique_ptr<KernelBuilder> builder_instance;

  KernelBuilder& builder() {
    const std::lock_guard lock(mutex);
    if (!builder_instance) builder_instance = std::make_unique<KernelBuilder>(config, logger, options.compiler);
    return *builder_instance;
  }

  /// The driver, initialised. Nothing before the first call of this touches CUDA (R04).
  Result<const driver::DriverTable*> table() const {
    const driver::DriverTable* table = options.driver;
    if (table == nullptr) {
      Result<const driver::DriverTable*> system = driver::system_driver();
      if (!system) return system.error();
      table = *system;
    }
    if (Status s = driver::initialize(*table); !s) return s.error();
    return table;
  }

  /// Packing kernels by context and format: few formats exist, so that they stay until unload_all().
  struct PackSlot {
    unsigned long long context_id;
    QuantFormat format;
    PackKernels kernels;
  };
  std::vector<PackSlot> pack_slots;

  Result<BuildReport> build(const Plan& plan, JitMode jit, const LoadOptions& load);
  Result<PackKernels> packing_kernels(const driver::DriverTable& table, const driver::CurrentContext& context, const Plan& plan);
  Status run_debug(const Binding::Impl& b, StreamHandle stream, const RunArgs& args);
};

namespace {

struct DriverContext {
  const driver::DriverTable* table = nullptr;
  driver::CurrentContext context;
};

template <class Impl>
Result<DriverContext> driver_context(const Impl& impl) {
  Result<const driver::DriverTable*> table = impl.table();
  if (!table) return table.error();
  Result<driver::CurrentContext> context = driver::current_context(**table);
  if (!context) return context.error();
  return DriverContext{*table, *context};
}

driver::DevicePtr device_ptr(const void* pointer) { return reinterpret_cast<driver::DevicePtr>(pointer); }

/// R02: device memory of another device than the context's would fault at the first access. Other memory (managed, host) passes.
Status check_memory_device(const DriverContext& dc, const char* name, const void* pointer) {
  unsigned type = 0;
  int ordinal = 0;
  if (dc.table->pointer_get_attribute(&type, driver::PointerAttribute::memory_type, device_ptr(pointer)) != driver::kSuccess) return {};
  if (type != driver::kMemoryTypeDevice) return {};
  if (dc.table->pointer_get_attribute(&ordinal, driver::PointerAttribute::device_ordinal, device_ptr(pointer)) != driver::kSuccess) return {};
  if (ordinal == dc.context.device) return {};
  return invalid_argument("{} at {} lies on device {}, the current context is on device {}", name, pointer, ordinal, dc.context.device);
}

Status check_no_stream(StreamHandle stream) {
  if (stream == nullptr) return {};
  return invalid_argument("stream {}: the lock-step device has no streams (accepted: null)", fmt::ptr(stream));
}

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

BindingStatus status_of(const ControlRegion& control) {
  BindingStatus status;
  status.code = static_cast<KernelStatus>(control.status);
  status.detail = control.status_detail;
  if (control.magic != kControlMagic || control.version != kControlVersion) status.code = KernelStatus::control_corrupt;
  switch (status.code) {
    case KernelStatus::ok: status.text = "ok"; break;
    case KernelStatus::control_corrupt:
      status.text = "the control region does not hold what init_scratch writes: it was not called, or the scratch was overwritten";
      break;
    default: status.text = fmt::format("status {} (detail {})", control.status, control.status_detail); break;
  }
  return status;
}

}  // namespace

Status Binding::Impl::enqueue(StreamHandle stream, const RunArgs& args) const {
  return for_each_chunk(*plan, args, [&](const Bucket& bucket, const RunArgs& chunk) {
    return submit(*table, *plan, kernels, make_launches(*plan, bucket, weights.data, scratch, chunk), stream);
  });
}

Binding::Binding(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;
const Plan& Binding::plan() const { return *impl_->plan; }
const PreparedWeights& Binding::weights() const { return impl_->weights; }
void* Binding::scratch() const { return impl_->scratch; }
i64 Binding::scratch_bytes() const { return impl_->scratch_bytes; }

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::create(EngineOptions options) {
  return guarded([&]() -> Result<Engine> {
    Result<Config> config = resolve_config(options.kernels, process_environment);
    if (!config) return config.error();
    auto impl = std::make_unique<Impl>();
    impl->logger = Logger(options.kernels.log, config->log);
    impl->options = std::move(options);
    impl->config = std::move(*config);
    if (impl->options.device == EngineDevice::lockstep) {
      lockstep::Options lockstep;
      lockstep.cache_root = impl->config.cache.disk.root;
      // For debuggers (docs/lockstep.md).
      lockstep.source_dir = process_environment("W4MOE_LOCKSTEP_SOURCE").value_or("");
      std::istringstream flags(process_environment("W4MOE_LOCKSTEP_FLAGS").value_or(""));
      for (std::string flag; flags >> flag;) lockstep.compile_flags.push_back(flag);
      impl->lockstep = std::make_unique<lockstep::LockstepEngine>(std::move(lockstep));
    }
    return Engine(std::move(impl));
  });
}

Result<DeviceSpec> Engine::device() const {
  return guarded([&]() -> Result<DeviceSpec> {
    if (impl_->lockstep) return lockstep_device();
    Result<DriverContext> dc = driver_context(*impl_);
    if (!dc) return dc.error();
    return driver::device_spec(*dc->table, dc->context.device);
  });
}

Result<DeviceSpec> Engine::device(int ordinal) const {
  return guarded([&]() -> Result<DeviceSpec> {
    if (impl_->lockstep) {
      if (ordinal != 0) return invalid_argument("device {} does not exist; there is 1", ordinal);
      return lockstep_device();
    }
    Result<const driver::DriverTable*> table = impl_->table();
    if (!table) return table.error();
    int count = 0;
    if (Status s = driver::check(**table, (*table)->device_get_count(&count), "cuDeviceGetCount"); !s) return s.error();
    if (ordinal < 0 || ordinal >= count) return invalid_argument("device {} does not exist; there are {}", ordinal, count);
    driver::Device device = 0;
    if (Status s = driver::check(**table, (*table)->device_get(&device, ordinal), "cuDeviceGet"); !s) return s.error();
    return driver::device_spec(**table, device);
  });
}

Result<BuildReport> Engine::Impl::build(const Plan& plan, JitMode jit, const LoadOptions& load) {
  const auto start = std::chrono::steady_clock::now();
  BuildOptions build_options;
  build_options.progress = load.progress;
  build_options.cancelled = load.cancelled;
  if (lockstep) {
    if (Status s = check_grids(plan); !s) return s.error();
    return lockstep->build(plan, jit, config.jobs, build_options);
  }
  Result<DriverContext> dc = driver_context(*this);
  if (!dc) return dc.error();
  if (const auto held = kernels.hold(plan, dc->context.id)) {
    BuildReport report;
    report.kernels = *held;
    report.hits = static_cast<int>(held->size());
    return report;
  }
  if (Status s = check_not_capturing(*dc->table, load.stream); !s) return s.error();
  if (Status s = driver::check_runs_on(*dc->table, dc->context.device, plan.device.arch); !s) return s.error();
  if (Status s = check_grids(plan); !s) return s.error();

  std::vector<std::size_t> index_of;
  Result<std::vector<BuiltKernel>> built = builder().build(kernel_wishes(std::span<const Plan>(&plan, 1)), jit, build_options, &index_of);
  if (!built) return built.error();
  if (Status s = kernels.load(*dc->table, plan, dc->context, *built, index_of); !s) return s.error();
  return build_report(*built, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

Result<BuildReport> Engine::build(const Plan& plan, const LoadOptions& options) {
  return guarded([&] { return impl_->build(plan, impl_->frozen ? JitMode::off : impl_->config.jit, options); });
}

void Engine::freeze() { impl_->frozen = true; }
bool Engine::frozen() const { return impl_->frozen || impl_->config.jit == JitMode::off; }

Result<BuildReport> Engine::preload(const Plan& plan, const LoadOptions& options) {
  return guarded([&] { return impl_->build(plan, JitMode::off, options); });
}

Status Engine::unload(const Plan& plan) {
  return guarded([&]() -> Status {
    if (impl_->lockstep) return {};  // shared objects of some ten kilobytes stay until the engine goes
    Result<DriverContext> dc = driver_context(*impl_);
    if (!dc) return dc.error();
    return impl_->kernels.release(plan, dc->context.id);
  });
}

void Engine::unload_all() {
  impl_->kernels.clear();
  const std::lock_guard lock(impl_->mutex);
  impl_->pack_slots.clear();
}

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
    Result<DriverContext> dc = driver_context(*impl_);
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
    Result<DriverContext> dc = driver_context(*impl_);
    if (!dc) return dc.error();
    const driver::Code code = dc->table->memcpy_dtoh(&weights.header, device_ptr(device_data), sizeof(WeightHeader));
    if (code != driver::kSuccess) return driver::driver_error(*dc->table, code, "cuMemcpyDtoH", "reading the header of prepared weights");
    if (Status s = check_header(weights.header, device_data, bytes); !s) return s.error();
    return weights;
  });
}

Result<Binding> Engine::bind(const Plan& plan, const PreparedWeights& weights, void* scratch, i64 scratch_bytes) const {
  return guarded([&]() -> Result<Binding> {
    if (Status s = check_weights(plan, weights); !s) return s.error();
    if (Status s = check_scratch(plan, scratch, scratch_bytes); !s) return s.error();
    if (Status s = check_grids(plan); !s) return s.error();
    auto impl = std::make_unique<Binding::Impl>();
    impl->plan = std::make_shared<const Plan>(plan);
    impl->weights = weights;
    impl->scratch = scratch;
    impl->scratch_bytes = scratch_bytes;
    if (impl_->lockstep) {
      if (!impl_->lockstep->has_built(plan)) return Error{ErrorCode::not_prepared, "the plan's kernels are not built: call build(plan) or preload(plan) first"};
      return Binding(std::move(impl));
    }
    Result<DriverContext> dc = driver_context(*impl_);
    if (!dc) return dc.error();
    if (Status s = check_memory_device(*dc, "the prepared weights", weights.data); !s) return s.error();
    if (Status s = check_memory_device(*dc, "scratch", scratch); !s) return s.error();

    auto kernels = impl_->kernels.find(plan, dc->context.id);
    if (!kernels) {
      return Error{ErrorCode::not_prepared, "the plan's kernels are not loaded in the current context: call build(plan) or preload(plan) first, outside "
                                            "any capture"};
    }
    impl->table = dc->table;
    impl->context = dc->context;
    impl->kernels = std::move(*kernels);
    if (impl_->options.debug) impl->guards = guard_zones(plan, scratch_bytes);
    return Binding(std::move(impl));
  });
}

Status Engine::init_scratch(const Binding& binding, StreamHandle stream) const {
  return guarded([&]() -> Status {
    const Binding::Impl& b = *binding.impl_;
    if (impl_->lockstep) {
      if (Status s = check_no_stream(stream); !s) return s;
      return lockstep::LockstepEngine::init_scratch(*b.plan, b.scratch, b.scratch_bytes);
    }
    if (Status s = check_stream(*b.table, b.context, stream); !s) return s;
    const driver::ScopedContext current(*b.table, b.context.handle);
    if (Status s = driver::check(*b.table, current.code(), "cuCtxPushCurrent"); !s) return s;

    // Fills only: they need no host memory that would have to outlive a capture.
    const driver::DevicePtr control = device_ptr(b.scratch) + static_cast<u64>(b.plan->scratch.span(Region::control).offset_bytes);
    if (Status s = driver::check(*b.table, b.table->memset_d8_async(control, 0, kControlBytes, stream), "cuMemsetD8Async"); !s) return s;
    const std::pair<std::size_t, u32> words[] = {{offsetof(ControlRegion, magic), static_cast<u32>(kControlMagic)},
                                                 {offsetof(ControlRegion, magic) + 4, static_cast<u32>(kControlMagic >> 32)},
                                                 {offsetof(ControlRegion, version), kControlVersion}};
    for (const auto& [offset, word] : words) {
      if (Status s = driver::check(*b.table, b.table->memset_d32_async(control + offset, word, 1, stream), "cuMemsetD32Async"); !s) return s;
    }
    return {};
  });
}

Status Engine::run(const Binding& binding, StreamHandle stream, const RunArgs& args) const {
  return guarded([&]() -> Status {
    const Binding::Impl& b = *binding.impl_;
    if (impl_->lockstep) {
      if (Status s = check_no_stream(stream); !s) return s;
      return impl_->lockstep->run(*b.plan, b.weights, b.scratch, b.scratch_bytes, args);
    }
    if (Status s = check_run(*b.plan, args); !s) return s;
    if (args.tokens == 0) return {};
    if (Status s = check_overlap(*b.plan, args, b.weights, b.scratch); !s) return s;
    if (Status s = check_stream(*b.table, b.context, stream); !s) return s;
    const driver::ScopedContext current(*b.table, b.context.handle);
    if (Status s = driver::check(*b.table, current.code(), "cuCtxPushCurrent"); !s) return s;
    return impl_->options.debug ? impl_->run_debug(b, stream, args) : b.enqueue(stream, args);
  });
}

Status Engine::Impl::run_debug(const Binding::Impl& b, StreamHandle stream, const RunArgs& args) {
  const driver::DriverTable& t = *b.table;
  driver::CaptureStatus capture = driver::CaptureStatus::none;
  if (Status s = driver::check(t, t.stream_is_capturing(stream, &capture), "cuStreamIsCapturing"); !s) return s;
  if (Status s = scratch_use.enter(b.scratch, b.scratch_bytes, stream); !s) return s;
  const Status result = [&]() -> Status {
    if (Status s = poison_scratch(t, *b.plan, b.guards, b.scratch, stream); !s) return s;
    if (Status s = b.enqueue(stream, args); !s) return s;
    if (capture != driver::CaptureStatus::none) return {};
    if (Status s = driver::check(t, t.stream_synchronize(stream), "cuStreamSynchronize"); !s) return s;
    return check_guards(t, b.guards, b.scratch);
  }();
  scratch_use.leave(b.scratch);
  return result;
}

Result<BindingStatus> Engine::status(const Binding& binding) const {
  return guarded([&]() -> Result<BindingStatus> {
    const Binding::Impl& b = *binding.impl_;
    const i64 offset = b.plan->scratch.span(Region::control).offset_bytes;
    ControlRegion control;
    if (impl_->lockstep) {
      std::memcpy(&control, static_cast<const u8*>(b.scratch) + offset, sizeof(control));
      return status_of(control);
    }
    const driver::ScopedContext current(*b.table, b.context.handle);
    if (Status s = driver::check(*b.table, current.code(), "cuCtxPushCurrent"); !s) return s.error();
    const driver::Code code = b.table->memcpy_dtoh(&control, device_ptr(b.scratch) + static_cast<u64>(offset), sizeof(control));
    if (code != driver::kSuccess) return driver::driver_error(*b.table, code, "cuMemcpyDtoH", "reading the control region");
    return status_of(control);
  });
}

DeviceSpec lockstep_device(Arch arch) {
  DeviceSpec device = named_device(arch, lockstep::kLockstepSms);
  device.name = fmt::format("lockstep ({})", to_string(arch));
  return device;
}

i64 debug_guard_bytes() { return kGuardBytes; }

Status supports(const Problem& problem, const DeviceSpec& device) {
  return guarded([&]() -> Status {
    Result<Plan> plan = make_plan(problem, device);
    if (!plan) return plan.error();
    return {};
  });
}

Result<i64> required_bytes(const Problem& problem, const DeviceSpec& device) {
  return guarded([&]() -> Result<i64> {
    Result<Plan> plan = make_plan(problem, device);
    if (!plan) return plan.error();
    return plan->required_bytes();
  });
}

}  // namespace w4moe
