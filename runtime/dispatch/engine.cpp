#include <fmt/format.h>

#include <chrono>
#include <sstream>

#include "generator/problem/errors.hpp"
#include "runtime/build/report.hpp"
#include "runtime/dispatch/checks.hpp"
#include "runtime/dispatch/engine_impl.hpp"
#include "runtime/guarded.hpp"

namespace w4moe {

Result<const driver::DriverTable*> Engine::Impl::table() const {
  const driver::DriverTable* table = options.driver;
  if (table == nullptr) {
    Result<const driver::DriverTable*> system = driver::system_driver();
    if (!system) return system.error();
    table = *system;
  }
  if (Status s = driver::initialize(*table); !s) return s.error();
  return table;
}

Result<DriverContext> Engine::Impl::driver_context() const {
  Result<const driver::DriverTable*> table = this->table();
  if (!table) return table.error();
  Result<driver::CurrentContext> context = driver::current_context(**table);
  if (!context) return context.error();
  return DriverContext{*table, *context};
}

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
    Result<DriverContext> dc = impl_->driver_context();
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
  Result<DriverContext> dc = driver_context();
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
    Result<DriverContext> dc = impl_->driver_context();
    if (!dc) return dc.error();
    return impl_->kernels.release(plan, dc->context.id);
  });
}

void Engine::unload_all() {
  impl_->kernels.clear();
  const std::lock_guard lock(impl_->mutex);
  impl_->pack_slots.clear();
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
