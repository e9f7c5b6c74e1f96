// The recording driver as a libcuda.so.1, for programs that know nothing of it: one device, an H200 by its numbers, on host memory.
// Launches do nothing.
#include <string_view>

#include "tests/fake_driver/fake_driver.hpp"

namespace {

using w4moe::driver::DriverTable;

template <class F>
void* address(F function) {
  return reinterpret_cast<void*>(function);
}

w4moe::test::FakeDriver& the_driver() {
  static auto* const driver = new w4moe::test::FakeDriver;  // as long as the process: users have pointers into it
  return *driver;
}

void* find(std::string_view name) {
  const DriverTable& t = the_driver().table();
  const std::pair<std::string_view, void*> functions[] = {
      {"cuInit", address(t.init)},
      {"cuDriverGetVersion", address(t.driver_get_version)},
      {"cuGetErrorName", address(t.get_error_name)},
      {"cuGetErrorString", address(t.get_error_string)},
      {"cuDeviceGet", address(t.device_get)},
      {"cuDeviceGetCount", address(t.device_get_count)},
      {"cuDeviceGetName", address(t.device_get_name)},
      {"cuDeviceGetAttribute", address(t.device_get_attribute)},
      {"cuDevicePrimaryCtxRetain", address(t.device_primary_ctx_retain)},
      {"cuDevicePrimaryCtxRelease", address(t.device_primary_ctx_release)},
      {"cuCtxCreate", address(t.ctx_create)},
      {"cuCtxDestroy", address(t.ctx_destroy)},
      {"cuCtxGetCurrent", address(t.ctx_get_current)},
      {"cuCtxPushCurrent", address(t.ctx_push_current)},
      {"cuCtxPopCurrent", address(t.ctx_pop_current)},
      {"cuCtxGetDevice", address(t.ctx_get_device)},
      {"cuCtxGetId", address(t.ctx_get_id)},
      {"cuCtxSynchronize", address(t.ctx_synchronize)},
      {"cuStreamCreate", address(t.stream_create)},
      {"cuStreamDestroy", address(t.stream_destroy)},
      {"cuStreamSynchronize", address(t.stream_synchronize)},
      {"cuStreamQuery", address(t.stream_query)},
      {"cuStreamWaitEvent", address(t.stream_wait_event)},
      {"cuStreamGetCtx", address(t.stream_get_ctx)},
      {"cuStreamIsCapturing", address(t.stream_is_capturing)},
      {"cuStreamBeginCapture", address(t.stream_begin_capture)},
      {"cuStreamEndCapture", address(t.stream_end_capture)},
      {"cuThreadExchangeStreamCaptureMode", address(t.thread_exchange_stream_capture_mode)},
      {"cuLaunchHostFunc", address(t.launch_host_func)},
      {"cuEventCreate", address(t.event_create)},
      {"cuEventDestroy", address(t.event_destroy)},
      {"cuEventRecord", address(t.event_record)},
      {"cuEventQuery", address(t.event_query)},
      {"cuEventSynchronize", address(t.event_synchronize)},
      {"cuEventElapsedTime", address(t.event_elapsed_time)},
      {"cuGraphInstantiateWithFlags", address(t.graph_instantiate)},
      {"cuGraphLaunch", address(t.graph_launch)},
      {"cuGraphGetNodes", address(t.graph_get_nodes)},
      {"cuGraphDestroy", address(t.graph_destroy)},
      {"cuGraphExecDestroy", address(t.graph_exec_destroy)},
      {"cuLibraryLoadData", address(t.library_load_data)},
      {"cuLibraryUnload", address(t.library_unload)},
      {"cuLibraryGetKernel", address(t.library_get_kernel)},
      {"cuKernelGetFunction", address(t.kernel_get_function)},
      {"cuFuncLoad", address(t.func_load)},
      {"cuFuncGetAttribute", address(t.func_get_attribute)},
      {"cuFuncSetAttribute", address(t.func_set_attribute)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", address(t.occupancy_max_active_blocks)},
      {"cuLaunchKernelEx", address(t.launch_kernel_ex)},
      {"cuMemAlloc", address(t.mem_alloc)},
      {"cuMemFree", address(t.mem_free)},
      {"cuMemGetInfo", address(t.mem_get_info)},
      {"cuMemHostAlloc", address(t.mem_host_alloc)},
      {"cuMemFreeHost", address(t.mem_free_host)},
      {"cuMemcpyHtoD", address(t.memcpy_htod)},
      {"cuMemcpyDtoH", address(t.memcpy_dtoh)},
      {"cuMemcpyHtoDAsync", address(t.memcpy_htod_async)},
      {"cuMemcpyDtoHAsync", address(t.memcpy_dtoh_async)},
      {"cuMemcpyDtoDAsync", address(t.memcpy_dtod_async)},
      {"cuMemsetD8Async", address(t.memset_d8_async)},
      {"cuMemsetD32Async", address(t.memset_d32_async)},
      {"cuPointerGetAttribute", address(t.pointer_get_attribute)},
  };
  for (const auto& [known, function] : functions) {
    if (known == name) return function;
  }
  return nullptr;
}

}  // namespace

extern "C" int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long, int* found) {
  // From 12.5 on this name has a form for green contexts, which the fake driver lacks.
  const bool green = version >= 12050 && std::string_view(name) == "cuStreamGetCtx";
  *function = green ? nullptr : find(name);
  if (found != nullptr) *found = *function != nullptr ? 0 : 1;
  return *function != nullptr ? 0 : 500;
}
