#include "tests/fake_driver/fake_table.hpp"

#include "tests/fake_driver/fake_functions.hpp"

namespace w4moe::test {

DriverTable fake_table() {
  using F = FakeFunctions;
  DriverTable t;
#define FAKE_ENTRY(name) t.name = &F::name
  FAKE_ENTRY(init);
  FAKE_ENTRY(driver_get_version);
  FAKE_ENTRY(get_error_name);
  FAKE_ENTRY(get_error_string);
  FAKE_ENTRY(device_get);
  FAKE_ENTRY(device_get_count);
  FAKE_ENTRY(device_get_name);
  FAKE_ENTRY(device_get_attribute);
  FAKE_ENTRY(device_primary_ctx_retain);
  FAKE_ENTRY(device_primary_ctx_release);
  FAKE_ENTRY(ctx_create);
  FAKE_ENTRY(ctx_destroy);
  FAKE_ENTRY(ctx_get_current);
  FAKE_ENTRY(ctx_push_current);
  FAKE_ENTRY(ctx_pop_current);
  FAKE_ENTRY(ctx_get_device);
  FAKE_ENTRY(ctx_get_id);
  FAKE_ENTRY(ctx_synchronize);
  FAKE_ENTRY(stream_create);
  FAKE_ENTRY(stream_destroy);
  FAKE_ENTRY(stream_synchronize);
  FAKE_ENTRY(stream_query);
  FAKE_ENTRY(stream_wait_event);
  FAKE_ENTRY(stream_get_ctx);
  FAKE_ENTRY(stream_is_capturing);
  FAKE_ENTRY(stream_begin_capture);
  FAKE_ENTRY(stream_end_capture);
  FAKE_ENTRY(thread_exchange_stream_capture_mode);
  FAKE_ENTRY(launch_host_func);
  FAKE_ENTRY(event_create);
  FAKE_ENTRY(event_destroy);
  FAKE_ENTRY(event_record);
  FAKE_ENTRY(event_query);
  FAKE_ENTRY(event_synchronize);
  FAKE_ENTRY(event_elapsed_time);
  FAKE_ENTRY(graph_instantiate);
  FAKE_ENTRY(graph_launch);
  FAKE_ENTRY(graph_get_nodes);
  FAKE_ENTRY(graph_destroy);
  FAKE_ENTRY(graph_exec_destroy);
  FAKE_ENTRY(library_load_data);
  FAKE_ENTRY(library_unload);
  FAKE_ENTRY(library_get_kernel);
  FAKE_ENTRY(kernel_get_function);
  FAKE_ENTRY(func_load);
  FAKE_ENTRY(func_get_attribute);
  FAKE_ENTRY(func_set_attribute);
  FAKE_ENTRY(occupancy_max_active_blocks);
  FAKE_ENTRY(launch_kernel_ex);
  FAKE_ENTRY(mem_alloc);
  FAKE_ENTRY(mem_free);
  FAKE_ENTRY(mem_get_info);
  FAKE_ENTRY(mem_host_alloc);
  FAKE_ENTRY(mem_free_host);
  FAKE_ENTRY(memcpy_htod);
  FAKE_ENTRY(memcpy_dtoh);
  FAKE_ENTRY(memcpy_htod_async);
  FAKE_ENTRY(memcpy_dtoh_async);
  FAKE_ENTRY(memcpy_dtod_async);
  FAKE_ENTRY(memset_d8_async);
  FAKE_ENTRY(memset_d32_async);
  FAKE_ENTRY(pointer_get_attribute);
#undef FAKE_ENTRY
  return t;
}

}  // namespace w4moe::test
