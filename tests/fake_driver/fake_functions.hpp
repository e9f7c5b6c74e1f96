// The functions of the fake driver's table: each records itself, may be told to fail, and then does on the host what the driver would do.
#pragma once

#include "tests/fake_driver/fake_driver.hpp"

namespace w4moe::test {

using namespace driver;  // NOLINT: these files are all about the driver's types

/// The beginning of every function: take the lock, record, fail if told to.
#define FAKE_CALL(name)                                  \
  FakeDriver& fake = *fake_instance();                   \
  const std::lock_guard lock(fake.mutex_);               \
  if (const Code told = fake.record(#name); told != kSuccess) return told

struct FakeFunctions {
  using ContextState = FakeDriver::ContextState;
  using StreamState = FakeDriver::StreamState;
  using LibraryState = FakeDriver::LibraryState;
  using KernelState = FakeDriver::KernelState;
  using FunctionState = FakeDriver::FunctionState;
  using GraphState = FakeDriver::GraphState;

  static ContextState* state(Context context) { return reinterpret_cast<ContextState*>(context); }
  static ContextState* current_state() { return state(FakeDriver::current()); }

  // fake_context.cpp, fake_stream.cpp, fake_module.cpp, fake_memory.cpp
  static Code init(unsigned);
  static Code driver_get_version(int* version);
  static Code get_error_name(Code code, const char** name);
  static Code get_error_string(Code code, const char** text);
  static Code device_get(Device* device, int ordinal);
  static Code device_get_count(int* count);
  static Code device_get_name(char* name, int bytes, Device device);
  static Code device_get_attribute(int* value, DeviceAttribute attribute, Device device);
  static Code device_primary_ctx_retain(Context* context, Device device);
  static Code device_primary_ctx_release(Device);
  static Code ctx_create(Context* context, unsigned, Device device);
  static Code ctx_destroy(Context context);
  static Code ctx_get_current(Context* context);
  static Code ctx_push_current(Context context);
  static Code ctx_pop_current(Context* context);
  static Code ctx_get_device(Device* device);
  static Code ctx_get_id(Context context, unsigned long long* id);
  static Code ctx_synchronize();
  static Code stream_create(Stream* stream, unsigned flags);
  static Code stream_destroy(Stream stream);
  static Code stream_synchronize(Stream stream);
  static Code stream_query(Stream);
  static Code stream_wait_event(Stream, Event, unsigned);
  static Code stream_get_ctx(Stream stream, Context* context);
  static Code stream_is_capturing(Stream stream, CaptureStatus* status);
  static Code stream_begin_capture(Stream stream, CaptureMode mode);
  static Code stream_end_capture(Stream stream, Graph* graph);
  static Code thread_exchange_stream_capture_mode(CaptureMode* mode);
  static Code launch_host_func(Stream stream, void (*function)(void*), void* user);
  static Code event_create(Event* event, unsigned);
  static Code event_destroy(Event event);
  static Code event_record(Event, Stream);
  static Code event_query(Event);
  static Code event_synchronize(Event);
  static Code event_elapsed_time(float* milliseconds, Event, Event);
  static Code graph_instantiate(GraphExec* exec, Graph graph, unsigned long long);
  static Code graph_launch(GraphExec exec, Stream);
  static Code graph_get_nodes(Graph graph, GraphNode*, std::size_t* count);
  static Code graph_destroy(Graph);
  static Code graph_exec_destroy(GraphExec);
  static Code library_load_data(Library* library, const void* code, int*, void**, unsigned, int*, void**, unsigned);
  static Code library_unload(Library library);
  static Code library_get_kernel(Kernel* kernel, Library library, const char* name);
  static Code kernel_get_function(Function* function, Kernel kernel);
  static Code func_load(Function function);
  static Code func_get_attribute(int* value, FunctionAttribute attribute, Function function);
  static Code func_set_attribute(Function function, FunctionAttribute attribute, int value);
  static Code occupancy_max_active_blocks(int* blocks, Function, int, std::size_t);
  static Code launch_kernel_ex(const LaunchConfig* config, Function function, void** args, void**);
  static Code mem_alloc(DevicePtr* pointer, std::size_t bytes);
  static Code mem_free(DevicePtr pointer);
  static Code mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes);
  static Code mem_host_alloc(void** pointer, std::size_t bytes, unsigned);
  static Code mem_free_host(void* pointer);
  static Code memcpy_htod(DevicePtr to, const void* from, std::size_t bytes);
  static Code memcpy_dtoh(void* to, DevicePtr from, std::size_t bytes);
  static Code memcpy_htod_async(DevicePtr to, const void* from, std::size_t bytes, Stream stream);
  static Code memcpy_dtoh_async(void* to, DevicePtr from, std::size_t bytes, Stream stream);
  static Code memcpy_dtod_async(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream);
  static Code memset_d8_async(DevicePtr to, unsigned char value, std::size_t bytes, Stream stream);
  static Code memset_d32_async(DevicePtr to, unsigned value, std::size_t words, Stream stream);
  static Code pointer_get_attribute(void* value, PointerAttribute attribute, DevicePtr pointer);
};

}  // namespace w4moe::test
