// What an Engine holds. Its functions are spread over engine.cpp (life, kernels), engine_weights.cpp and engine_run.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/build/kernel_builder.hpp"
#include "runtime/dispatch/debug_guard.hpp"
#include "runtime/dispatch/stream_context.hpp"
#include "runtime/driver/driver_api.hpp"
#include "runtime/lockstep/engine.hpp"
#include "runtime/module/kernel_table.hpp"
#include "runtime/weights/gpu_packer.hpp"
#include "w4moe/engine.hpp"

namespace w4moe {

/// The driver, and the context and device that are current on the calling thread.
struct DriverContext {
  const driver::DriverTable* table = nullptr;
  driver::CurrentContext context;
};

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
  Result<const driver::DriverTable*> table() const;
  /// The driver and what is current on this thread.
  Result<DriverContext> driver_context() const;

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

inline driver::DevicePtr device_ptr(const void* pointer) { return reinterpret_cast<driver::DevicePtr>(pointer); }

/// R02: device memory of another device than the context's would fault at the first access. Other memory (managed, host) passes.
Status check_memory_device(const DriverContext& dc, const char* name, const void* pointer);

/// The lock-step device knows only the null stream.
Status check_no_stream(StreamHandle stream);

}  // namespace w4moe
