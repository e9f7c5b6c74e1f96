#include "runtime/driver/driver_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <mutex>

namespace w4moe::driver {
namespace {

// Every function that the oldest supported driver (12.0) has; versions select the symbol's signature.
constexpr int kOldestVersion = 12000;

using AnyFunction = void (*)();

struct Symbol {
  const char* name;
  AnyFunction* slot;  // where in a table the address goes
  int version = kOldestVersion;
  bool optional = false;
};

template <class F>
AnyFunction* slot(F& pointer) {
  static_assert(sizeof(F) == sizeof(AnyFunction));
  return reinterpret_cast<AnyFunction*>(&pointer);
}

std::vector<Symbol> symbols_of(DriverTable& t) {
  return {
      {"cuInit", slot(t.init)},
      {"cuDriverGetVersion", slot(t.driver_get_version)},
      {"cuGetErrorName", slot(t.get_error_name)},
      {"cuGetErrorString", slot(t.get_error_string)},
      {"cuDeviceGet", slot(t.device_get)},
      {"cuDeviceGetCount", slot(t.device_get_count)},
      {"cuDeviceGetName", slot(t.device_get_name)},
      {"cuDeviceGetAttribute", slot(t.device_get_attribute)},
      {"cuDevicePrimaryCtxRetain", slot(t.device_primary_ctx_retain)},
      {"cuDevicePrimaryCtxRelease", slot(t.device_primary_ctx_release)},
      // 3.2 has the form without affinity parameters, which later versions of the symbol take.
      {"cuCtxCreate", slot(t.ctx_create), 3020},
      {"cuCtxDestroy", slot(t.ctx_destroy)},
      {"cuCtxGetCurrent", slot(t.ctx_get_current)},
      {"cuCtxPushCurrent", slot(t.ctx_push_current)},
      {"cuCtxPopCurrent", slot(t.ctx_pop_current)},
      {"cuCtxGetDevice", slot(t.ctx_get_device)},
      {"cuCtxGetId", slot(t.ctx_get_id)},
      {"cuCtxSynchronize", slot(t.ctx_synchronize)},
      {"cuStreamCreate", slot(t.stream_create)},
      {"cuStreamDestroy", slot(t.stream_destroy)},
      {"cuStreamSynchronize", slot(t.stream_synchronize)},
      {"cuStreamQuery", slot(t.stream_query)},
      {"cuStreamWaitEvent", slot(t.stream_wait_event)},
      {"cuStreamGetCtx", slot(t.stream_get_ctx)},
      {"cuStreamGetCtx", slot(t.stream_get_ctx_green), 12050, true},
      {"cuStreamIsCapturing", slot(t.stream_is_capturing)},
      {"cuStreamBeginCapture", slot(t.stream_begin_capture)},
      {"cuStreamEndCapture", slot(t.stream_end_capture)},
      {"cuThreadExchangeStreamCaptureMode", slot(t.thread_exchange_stream_capture_mode)},
      {"cuLaunchHostFunc", slot(t.launch_host_func)},
      {"cuEventCreate", slot(t.event_create)},
      {"cuEventDestroy", slot(t.event_destroy)},
      {"cuEventRecord", slot(t.event_record)},
      {"cuEventQuery", slot(t.event_query)},
      {"cuEventSynchronize", slot(t.event_synchronize)},
      {"cuEventElapsedTime", slot(t.event_elapsed_time)},
      {"cuGraphInstantiateWithFlags", slot(t.graph_instantiate)},
      {"cuGraphLaunch", slot(t.graph_launch)},
      {"cuGraphGetNodes", slot(t.graph_get_nodes)},
      {"cuGraphDestroy", slot(t.graph_destroy)},
      {"cuGraphExecDestroy", slot(t.graph_exec_destroy)},
      {"cuLibraryLoadData", slot(t.library_load_data)},
      {"cuLibraryUnload", slot(t.library_unload)},
      {"cuLibraryGetKernel", slot(t.library_get_kernel)},
      {"cuKernelGetFunction", slot(t.kernel_get_function)},
      {"cuFuncLoad", slot(t.func_load), 12040, true},
      {"cuFuncGetAttribute", slot(t.func_get_attribute)},
      {"cuFuncSetAttribute", slot(t.func_set_attribute)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", slot(t.occupancy_max_active_blocks)},
      {"cuLaunchKernelEx", slot(t.launch_kernel_ex)},
      {"cuMemAlloc", slot(t.mem_alloc)},
      {"cuMemFree", slot(t.mem_free)},
      {"cuMemGetInfo", slot(t.mem_get_info)},
      {"cuMemHostAlloc", slot(t.mem_host_alloc)},
      {"cuMemFreeHost", slot(t.mem_free_host)},
      {"cuMemcpyHtoD", slot(t.memcpy_htod)},
      {"cuMemcpyDtoH", slot(t.memcpy_dtoh)},
      {"cuMemcpyHtoDAsync", slot(t.memcpy_htod_async)},
      {"cuMemcpyDtoHAsync", slot(t.memcpy_dtoh_async)},
      {"cuMemcpyDtoDAsync", slot(t.memcpy_dtod_async)},
      {"cuMemsetD8Async", slot(t.memset_d8_async)},
      {"cuMemsetD32Async", slot(t.memset_d32_async)},
      {"cuPointerGetAttribute", slot(t.pointer_get_attribute)},
  };
}

using GetProcAddress = Code (*)(const char* name, void** function, int version, unsigned long long flags, int* found);

}  // namespace

Result<DriverTable> load_driver(const std::vector<std::string>& names) {
  void* library = nullptr;
  std::string tried;
  for (const std::string& name : names) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    const char* why = dlerror();
    tried += fmt::format("\n  {}", why != nullptr ? why : name.c_str());
  }
  if (library == nullptr) {
    return Error{ErrorCode::toolchain_missing,
                 fmt::format("the CUDA driver library was not found; it comes with the NVIDIA driver. Tried:{}", tried)};
  }
  // The library is never closed: other users of the process share it, and its threads cannot be stopped.
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    return Error{ErrorCode::toolchain_missing,
                 "the CUDA driver has no cuGetProcAddress_v2: it is older than 12.0, the oldest that w4moe runs on"};
  }
  DriverTable table;
  std::string missing;
  int version = kOldestVersion;
  for (const Symbol& s : symbols_of(table)) {
    // An older driver might answer with an earlier form of the function, which takes other arguments.
    if (s.optional && s.version > version) continue;
    void* address = nullptr;
    int found = 0;
    const Code code = get(s.name, &address, s.version, 0, &found);
    if (code == kSuccess && address != nullptr) {
      *s.slot = reinterpret_cast<AnyFunction>(address);
      if (s.slot == slot(table.driver_get_version) && table.driver_get_version(&version) != kSuccess) version = kOldestVersion;
    } else if (code == kStubLibrary) {
      return Error{ErrorCode::toolchain_missing, "libcuda is the stub of the CUDA toolkit, which is only there to link against: the library search path "
                                                 "must lead to the driver's own before it"};
    } else if (!s.optional) {
      missing += fmt::format(" {}", s.name);
    }
  }
  if (!missing.empty()) {
    return Error{ErrorCode::toolchain_missing,
                 fmt::format("the CUDA driver lacks functions that version 12.0 has:{}; w4moe needs a driver of 12.0 or later", missing)};
  }
  return table;
}

Result<const DriverTable*> system_driver() {
  static std::mutex mutex;
  static const DriverTable* loaded = nullptr;  // lives as long as the process
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    Result<DriverTable> table = load_driver({"libcuda.so.1", "libcuda.so"});
    if (!table) return table.error();
    loaded = new DriverTable(*table);
  }
  return loaded;
}

Status initialize(const DriverTable& table) {
  const Code code = table.init(0);
  if (code == kSuccess) return {};
  return Error{ErrorCode::toolchain_missing, fmt::format("no usable CUDA device: cuInit failed with {}", error_text(table, code))};
}

std::string error_text(const DriverTable& table, Code code) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (table.get_error_name == nullptr || table.get_error_name(code, &name) != kSuccess || name == nullptr) name = "unknown error";
  if (table.get_error_string == nullptr || table.get_error_string(code, &text) != kSuccess || text == nullptr) text = "no text";
  return fmt::format("{} ({}): {}", name, code, text);
}

Error driver_error(const DriverTable& table, Code code, const char* call, const std::string& what) {
  std::string message = fmt::format("{} failed: {}", call, error_text(table, code));
  if (!what.empty()) message += fmt::format("; {}", what);
  return Error{ErrorCode::driver, std::move(message)};
}

std::string version_text(const DriverTable& table) {
  int version = 0;
  if (table.driver_get_version(&version) != kSuccess) return "unknown";
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace w4moe::driver
