// The CUDA driver as a table of function pointers, filled from libcuda.so.1 at the first real need: a process without a GPU can
// plan, price and build, and importing the library never initialises CUDA. Own declarations, so that no CUDA header is needed.
// The table is plain data: tests fill it with functions of their own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "contract/prelude.h"
#include "w4moe/error.hpp"

namespace w4moe::driver {

/// CUresult. 0 is success; the others are named by error_text().
using Code = int;
using Device = int;                 ///< CUdevice: an ordinal
using DevicePtr = u64;              ///< CUdeviceptr
using Stream = void*;               ///< CUstream; null is the legacy default stream

// Opaque handles: distinct types, so that one cannot be passed for another.
using Context = struct ContextTag*;
using Library = struct LibraryTag*;
using Kernel = struct KernelTag*;
using Function = struct FunctionTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;
using GraphNode = struct GraphNodeTag*;

inline const Stream kStreamLegacy = reinterpret_cast<Stream>(1);
inline const Stream kStreamPerThread = reinterpret_cast<Stream>(2);

/// The codes that the library acts on; all others are only reported.
enum : Code {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kUnsupportedPtxVersion = 222,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kContextIsDestroyed = 709,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureImplicit = 906,
};

enum class DeviceAttribute : int {
  multiprocessor_count = 16,
  l2_cache_bytes = 38,
  max_threads_per_multiprocessor = 39,
  compute_capability_major = 75,
  compute_capability_minor = 76,
  max_shared_bytes_per_multiprocessor = 81,
  max_registers_per_multiprocessor = 82,
  max_shared_bytes_per_block_optin = 97,
};

enum class FunctionAttribute : int {
  max_threads_per_block = 0,
  static_shared_bytes = 1,
  local_bytes = 3,
  registers = 4,
  max_dynamic_shared_bytes = 8,
};

enum class PointerAttribute : int { memory_type = 2, device_ordinal = 9 };
inline constexpr unsigned kMemoryTypeDevice = 2;

enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;

/// CUlaunchAttribute: an id and a value of 64 bytes.
struct LaunchAttribute {
  int id = 0;
  int pad = 0;
  union Value {
    char bytes[64] = {};
    int programmatic_stream_serialization_allowed;
    int cooperative;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8, "the driver's layout");
inline constexpr int kAttributeCooperative = 2;
inline constexpr int kAttributeProgrammaticStreamSerialization = 6;

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(void*) != 8 || sizeof(LaunchConfig) == 56, "the driver's layout");

/// The driver functions in use, under their CUDA names without the prefix. Every pointer is set, except those marked optional.
struct DriverTable {
  Code (*init)(unsigned flags) = nullptr;
  Code (*driver_get_version)(int* version) = nullptr;
  Code (*get_error_name)(Code code, const char** name) = nullptr;
  Code (*get_error_string)(Code code, const char** text) = nullptr;

  Code (*device_get)(Device* device, int ordinal) = nullptr;
  Code (*device_get_count)(int* count) = nullptr;
  Code (*device_get_name)(char* name, int bytes, Device device) = nullptr;
  Code (*device_get_attribute)(int* value, DeviceAttribute attribute, Device device) = nullptr;
  Code (*device_primary_ctx_retain)(Context* context, Device device) = nullptr;
  Code (*device_primary_ctx_release)(Device device) = nullptr;

  Code (*ctx_create)(Context* context, unsigned flags, Device device) = nullptr;
  Code (*ctx_destroy)(Context context) = nullptr;
  Code (*ctx_get_current)(Context* context) = nullptr;
  Code (*ctx_push_current)(Context context) = nullptr;
  Code (*ctx_pop_current)(Context* context) = nullptr;
  Code (*ctx_get_device)(Device* device) = nullptr;
  Code (*ctx_get_id)(Context context, unsigned long long* id) = nullptr;
  Code (*ctx_synchronize)() = nullptr;

  Code (*stream_create)(Stream* stream, unsigned flags) = nullptr;
  Code (*stream_destroy)(Stream stream) = nullptr;
  Code (*stream_synchronize)(Stream stream) = nullptr;
  Code (*stream_query)(Stream stream) = nullptr;
  Code (*stream_wait_event)(Stream stream, Event event, unsigned flags) = nullptr;
  Code (*stream_get_ctx)(Stream stream, Context* context) = nullptr;
  /// Optional (12.5): the context behind a green context's stream.
  Code (*stream_get_ctx_green)(Stream stream, Context* context, void** green) = nullptr;
  Code (*stream_is_capturing)(Stream stream, CaptureStatus* status) = nullptr;
  Code (*stream_begin_capture)(Stream stream, CaptureMode mode) = nullptr;
  Code (*stream_end_capture)(Stream stream, Graph* graph) = nullptr;
  Code (*thread_exchange_stream_capture_mode)(CaptureMode* mode) = nullptr;
  Code (*launch_host_func)(Stream stream, void (*function)(void*), void* user) = nullptr;

  Code (*event_create)(Event* event, unsigned flags) = nullptr;
  Code (*event_destroy)(Event event) = nullptr;
  Code (*event_record)(Event event, Stream stream) = nullptr;
  Code (*event_query)(Event event) = nullptr;
  Code (*event_synchronize)(Event event) = nullptr;
  Code (*event_elapsed_time)(float* milliseconds, Event start, Event end) = nullptr;

  Code (*graph_instantiate)(GraphExec* exec, Graph graph, unsigned long long flags) = nullptr;
  Code (*graph_launch)(GraphExec exec, Stream stream) = nullptr;
  Code (*graph_get_nodes)(Graph graph, GraphNode* nodes, std::size_t* count) = nullptr;
  Code (*graph_destroy)(Graph graph) = nullptr;
  Code (*graph_exec_destroy)(GraphExec exec) = nullptr;

  Code (*library_load_data)(Library* library, const void* code, int* jit_options, void** jit_values, unsigned jit_count,
                            int* library_options, void** library_values, unsigned library_count) = nullptr;
  Code (*library_unload)(Library library) = nullptr;
  Code (*library_get_kernel)(Kernel* kernel, Library library, const char* name) = nullptr;
  Code (*kernel_get_function)(Function* function, Kernel kernel) = nullptr;
  /// Optional (12.4): finishes the loading of a function under CUDA_MODULE_LOADING=LAZY.
  Code (*func_load)(Function function) = nullptr;
  Code (*func_get_attribute)(int* value, FunctionAttribute attribute, Function function) = nullptr;
  Code (*func_set_attribute)(Function function, FunctionAttribute attribute, int value) = nullptr;
  Code (*occupancy_max_active_blocks)(int* blocks, Function function, int threads, std::size_t shared_bytes) = nullptr;
  Code (*launch_kernel_ex)(const LaunchConfig* config, Function function, void** args, void** extra) = nullptr;

  Code (*mem_alloc)(DevicePtr* pointer, std::size_t bytes) = nullptr;
  Code (*mem_free)(DevicePtr pointer) = nullptr;
  Code (*mem_get_info)(std::size_t* free_bytes, std::size_t* total_bytes) = nullptr;
  Code (*mem_host_alloc)(void** pointer, std::size_t bytes, unsigned flags) = nullptr;
  Code (*mem_free_host)(void* pointer) = nullptr;
  Code (*memcpy_htod)(DevicePtr to, const void* from, std::size_t bytes) = nullptr;
  Code (*memcpy_dtoh)(void* to, DevicePtr from, std::size_t bytes) = nullptr;
  Code (*memcpy_htod_async)(DevicePtr to, const void* from, std::size_t bytes, Stream stream) = nullptr;
  Code (*memcpy_dtoh_async)(void* to, DevicePtr from, std::size_t bytes, Stream stream) = nullptr;
  Code (*memcpy_dtod_async)(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream) = nullptr;
  Code (*memset_d8_async)(DevicePtr to, unsigned char value, std::size_t bytes, Stream stream) = nullptr;
  Code (*memset_d32_async)(DevicePtr to, unsigned value, std::size_t words, Stream stream) = nullptr;
  Code (*pointer_get_attribute)(void* value, PointerAttribute attribute, DevicePtr pointer) = nullptr;
};

/// The table of this process's driver. Loads libcuda.so.1 at the first call, without initialising CUDA. toolchain_missing, naming
/// every file that was tried, where there is none; a failure is not remembered.
Result<const DriverTable*> system_driver();

/// system_driver() with the library names to try, for tests.
Result<DriverTable> load_driver(const std::vector<std::string>& names);

/// cuInit. Cheap when repeated. toolchain_missing where the driver finds no device or cannot start, with its own text.
Status initialize(const DriverTable& table);

/// "CUDA_ERROR_INVALID_VALUE (1): invalid argument"
std::string error_text(const DriverTable& table, Code code);

/// Error{driver} with the call's name, what it was for, and the driver's own name and text of the code.
Error driver_error(const DriverTable& table, Code code, const char* call, const std::string& what = {});

/// Success, or driver_error().
inline Status check(const DriverTable& table, Code code, const char* call) {
  if (code == kSuccess) return {};
  return driver_error(table, code, call);
}

/// "13.0", from cuDriverGetVersion; "unknown" where that fails.
std::string version_text(const DriverTable& table);

}  // namespace w4moe::driver
