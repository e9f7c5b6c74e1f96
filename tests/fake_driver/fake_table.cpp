// The table's functions: each records itself, may be told to fail, and then does on the host what the driver would do.
#include "tests/fake_driver/fake_table.hpp"

#include <cstring>
#include <new>

namespace w4moe::test {

using namespace driver;  // NOLINT: this file is all about the driver's types

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

  static Code init(unsigned) {
    FAKE_CALL(init);
    fake.initialized_ = true;
    return fake.devices_.empty() ? kNoDevice : kSuccess;
  }
  static Code driver_get_version(int* version) {
    FAKE_CALL(driver_get_version);
    *version = 13000;
    return kSuccess;
  }
  static Code get_error_name(Code code, const char** name) {
    *name = code == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : code == kInvalidImage ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_FAKE";
    return kSuccess;
  }
  static Code get_error_string(Code code, const char** text) {
    *text = code == kOutOfMemory ? "out of memory" : "a fake error";
    return kSuccess;
  }

  static Code device_get(Device* device, int ordinal) {
    FAKE_CALL(device_get);
    *device = ordinal;
    return kSuccess;
  }
  static Code device_get_count(int* count) {
    FAKE_CALL(device_get_count);
    *count = static_cast<int>(fake.devices_.size());
    return kSuccess;
  }
  static Code device_get_name(char* name, int bytes, Device device) {
    FAKE_CALL(device_get_name);
    std::strncpy(name, fake.devices_[static_cast<std::size_t>(device)].name.c_str(), static_cast<std::size_t>(bytes));
    return kSuccess;
  }
  static Code device_get_attribute(int* value, DeviceAttribute attribute, Device device) {
    FAKE_CALL(device_get_attribute);
    const FakeDevice& d = fake.devices_[static_cast<std::size_t>(device)];
    switch (attribute) {
      case DeviceAttribute::multiprocessor_count: *value = d.sms; break;
      case DeviceAttribute::l2_cache_bytes: *value = 50 << 20; break;
      case DeviceAttribute::max_threads_per_multiprocessor: *value = 2048; break;
      case DeviceAttribute::compute_capability_major: *value = d.major; break;
      case DeviceAttribute::compute_capability_minor: *value = d.minor; break;
      case DeviceAttribute::max_shared_bytes_per_multiprocessor: *value = d.shared_per_sm_bytes; break;
      case DeviceAttribute::max_registers_per_multiprocessor: *value = 65536; break;
      case DeviceAttribute::max_shared_bytes_per_block_optin: *value = d.shared_optin_bytes; break;
      default: return kInvalidValue;
    }
    return kSuccess;
  }
  static Code device_primary_ctx_retain(Context* context, Device device) {
    FAKE_CALL(device_primary_ctx_retain);
    fake.contexts_.push_back(ContextState{fake.contexts_.size() + 100, device, false, {}});
    *context = reinterpret_cast<Context>(&fake.contexts_.back());
    return kSuccess;
  }
  static Code device_primary_ctx_release(Device) {
    FAKE_CALL(device_primary_ctx_release);
    return kSuccess;
  }

  static Code ctx_create(Context* context, unsigned, Device device) {
    FAKE_CALL(ctx_create);
    fake.contexts_.push_back(ContextState{fake.contexts_.size() + 100, device, false, {}});
    *context = reinterpret_cast<Context>(&fake.contexts_.back());
    context_stack.push_back(*context);
    return kSuccess;
  }
  static Code ctx_destroy(Context context) {
    FAKE_CALL(ctx_destroy);
    state(context)->destroyed = true;
    return kSuccess;
  }
  static Code ctx_get_current(Context* context) {
    FAKE_CALL(ctx_get_current);
    if (!fake.initialized_) return kNotInitialized;
    *context = FakeDriver::current();
    return kSuccess;
  }
  static Code ctx_push_current(Context context) {
    FAKE_CALL(ctx_push_current);
    if (state(context)->destroyed) return kContextIsDestroyed;
    context_stack.push_back(context);
    return kSuccess;
  }
  static Code ctx_pop_current(Context* context) {
    FAKE_CALL(ctx_pop_current);
    if (context_stack.empty()) return kInvalidContext;
    *context = context_stack.back();
    context_stack.pop_back();
    return kSuccess;
  }
  static Code ctx_get_device(Device* device) {
    FAKE_CALL(ctx_get_device);
    if (current_state() == nullptr) return kInvalidContext;
    *device = current_state()->device;
    return kSuccess;
  }
  static Code ctx_get_id(Context context, unsigned long long* id) {
    FAKE_CALL(ctx_get_id);
    *id = state(context)->id;
    return kSuccess;
  }
  static Code ctx_synchronize() {
    FAKE_CALL(ctx_synchronize);
    return fake.forbidden_in_capture() ? kCaptureUnsupported : kSuccess;
  }

  static Code stream_create(Stream* stream, unsigned flags) {
    FAKE_CALL(stream_create);
    if (current_state() == nullptr) return kInvalidContext;
    auto created = std::make_unique<StreamState>();
    created->context = current_state();
    created->blocking = (flags & kStreamNonBlocking) == 0;
    *stream = created.get();
    fake.streams_.emplace(*stream, std::move(created));
    return kSuccess;
  }
  static Code stream_destroy(Stream stream) {
    FAKE_CALL(stream_destroy);
    return fake.streams_.erase(stream) == 1 ? kSuccess : kInvalidHandle;
  }
  static Code stream_synchronize(Stream stream) {
    FAKE_CALL(stream_synchronize);
    StreamState* s = fake.stream_state(stream);
    if (s != nullptr && s->capture == CaptureStatus::active) {
      s->capture = CaptureStatus::invalidated;
      return kCaptureUnsupported;
    }
    return kSuccess;
  }
  static Code stream_query(Stream) {
    FAKE_CALL(stream_query);
    return kSuccess;
  }
  static Code stream_wait_event(Stream, Event, unsigned) {
    FAKE_CALL(stream_wait_event);
    return kSuccess;
  }
  static Code stream_get_ctx(Stream stream, Context* context) {
    FAKE_CALL(stream_get_ctx);
    if (StreamState* s = fake.stream_state(stream)) {
      *context = reinterpret_cast<Context>(s->context);
      return kSuccess;
    }
    *context = FakeDriver::current();
    return *context == nullptr ? kInvalidContext : kSuccess;
  }
  static Code stream_is_capturing(Stream stream, CaptureStatus* status) {
    FAKE_CALL(stream_is_capturing);
    *status = CaptureStatus::none;
    if (StreamState* s = fake.stream_state(stream)) {
      *status = s->capture;
      return kSuccess;
    }
    if (stream == kStreamPerThread) return kSuccess;
    for (const auto& [handle, s] : fake.streams_) {
      if (s->blocking && s->context == current_state() && s->capture != CaptureStatus::none) return kCaptureImplicit;
    }
    return kSuccess;
  }
  static Code stream_begin_capture(Stream stream, CaptureMode mode) {
    FAKE_CALL(stream_begin_capture);
    StreamState* s = fake.stream_state(stream);
    if (s == nullptr || s->capture != CaptureStatus::none) return kCaptureUnsupported;
    s->capture = CaptureStatus::active;
    s->mode = mode;
    s->capturing_thread = this_thread();
    s->graph = std::make_unique<GraphState>();
    return kSuccess;
  }
  static Code stream_end_capture(Stream stream, Graph* graph) {
    FAKE_CALL(stream_end_capture);
    StreamState* s = fake.stream_state(stream);
    if (s == nullptr || s->capture == CaptureStatus::none) return kInvalidValue;
    const bool valid = s->capture == CaptureStatus::active;
    s->capture = CaptureStatus::none;
    *graph = nullptr;
    if (!valid) return kCaptureInvalidated;
    GraphState* made = s->graph.get();
    fake.graphs_.emplace(made, std::move(s->graph));
    *graph = reinterpret_cast<Graph>(made);
    return kSuccess;
  }
  static Code thread_exchange_stream_capture_mode(CaptureMode* mode) {
    FAKE_CALL(thread_exchange_stream_capture_mode);
    std::swap(*mode, thread_capture_mode);
    return kSuccess;
  }
  static Code launch_host_func(Stream stream, void (*function)(void*), void* user) {
    FAKE_CALL(launch_host_func);
    return fake.enqueue(stream, [=] { function(user); });
  }

  static Code event_create(Event* event, unsigned) {
    FAKE_CALL(event_create);
    *event = reinterpret_cast<Event>(new int);
    return kSuccess;
  }
  static Code event_destroy(Event event) {
    FAKE_CALL(event_destroy);
    delete reinterpret_cast<int*>(event);
    return kSuccess;
  }
  static Code event_record(Event, Stream) {
    FAKE_CALL(event_record);
    return kSuccess;
  }
  static Code event_query(Event) {
    FAKE_CALL(event_query);
    return kSuccess;
  }
  static Code event_synchronize(Event) {
    FAKE_CALL(event_synchronize);
    return kSuccess;
  }
  static Code event_elapsed_time(float* milliseconds, Event, Event) {
    FAKE_CALL(event_elapsed_time);
    *milliseconds = 0;
    return kSuccess;
  }

  // A graph and its executable are one object here.
  static Code graph_instantiate(GraphExec* exec, Graph graph, unsigned long long) {
    FAKE_CALL(graph_instantiate);
    *exec = reinterpret_cast<GraphExec>(graph);
    return kSuccess;
  }
  static Code graph_launch(GraphExec exec, Stream) {
    FAKE_CALL(graph_launch);
    for (const auto& node : reinterpret_cast<GraphState*>(exec)->nodes) node();
    return kSuccess;
  }
  static Code graph_get_nodes(Graph graph, GraphNode*, std::size_t* count) {
    FAKE_CALL(graph_get_nodes);
    *count = reinterpret_cast<GraphState*>(graph)->nodes.size();
    return kSuccess;
  }
  static Code graph_destroy(Graph) {
    FAKE_CALL(graph_destroy);
    return kSuccess;
  }
  static Code graph_exec_destroy(GraphExec) {
    FAKE_CALL(graph_exec_destroy);
    return kSuccess;
  }

  static Code library_load_data(Library* library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
    FAKE_CALL(library_load_data);
    if (fake.forbidden_in_capture()) return kCaptureUnsupported;
    // An ELF file says where its section headers, which come last here, begin and how many there are.
    const auto* bytes = static_cast<const std::byte*>(code);
    u64 headers = 0;
    u16 count = 0;
    std::memcpy(&headers, bytes + 40, 8);
    std::memcpy(&count, bytes + 60, 2);
    w4moe::Result<CubinInfo> info = read_cubin({bytes, headers + count * std::size_t{64}});
    if (!info) return kInvalidImage;
    auto loaded = std::make_unique<LibraryState>(LibraryState{std::move(*info)});
    *library = reinterpret_cast<Library>(loaded.get());
    fake.libraries_.emplace(*library, std::move(loaded));
    return kSuccess;
  }
  static Code library_unload(Library library) {
    FAKE_CALL(library_unload);
    if (fake.forbidden_in_capture()) return kCaptureUnsupported;
    return fake.libraries_.erase(library) == 1 ? kSuccess : kInvalidHandle;
  }
  static Code library_get_kernel(Kernel* kernel, Library library, const char* name) {
    FAKE_CALL(library_get_kernel);
    auto* lib = reinterpret_cast<LibraryState*>(library);
    if (lib->info.kernel(name) == nullptr) return kNotFound;
    auto& slot = fake.kernels_[{lib, name}];
    slot = std::make_unique<KernelState>(KernelState{lib, name});
    *kernel = reinterpret_cast<Kernel>(slot.get());
    return kSuccess;
  }
  static Code kernel_get_function(Function* function, Kernel kernel) {
    FAKE_CALL(kernel_get_function);
    if (fake.forbidden_in_capture()) return kCaptureUnsupported;
    if (current_state() == nullptr) return kInvalidContext;
    auto* k = reinterpret_cast<KernelState*>(kernel);
    const FakeDevice& device = fake.devices_[static_cast<std::size_t>(current_state()->device)];
    if (k->library->info.sm / 10 != device.major) return kNoBinaryForGpu;
    auto& slot = fake.functions_[{k, current_state()}];
    if (!slot) slot = std::make_unique<FunctionState>(FunctionState{k, current_state()});
    *function = reinterpret_cast<Function>(slot.get());
    return kSuccess;
  }
  static Code func_load(Function function) {
    FAKE_CALL(func_load);
    reinterpret_cast<FunctionState*>(function)->loaded = true;
    return kSuccess;
  }
  static Code func_get_attribute(int* value, FunctionAttribute attribute, Function function) {
    FAKE_CALL(func_get_attribute);
    auto* f = reinterpret_cast<FunctionState*>(function);
    const CubinKernel& kernel = *f->kernel->library->info.kernel(f->kernel->name);
    switch (attribute) {
      case FunctionAttribute::max_threads_per_block: *value = kernel.max_threads; break;
      case FunctionAttribute::static_shared_bytes: *value = static_cast<int>(kernel.static_shared_bytes); break;
      case FunctionAttribute::local_bytes: *value = static_cast<int>(kernel.stack_bytes); break;
      case FunctionAttribute::registers: *value = kernel.registers; break;
      case FunctionAttribute::max_dynamic_shared_bytes: *value = f->max_dynamic_shared; break;
      default: return kInvalidValue;
    }
    return kSuccess;
  }
  static Code func_set_attribute(Function function, FunctionAttribute attribute, int value) {
    FAKE_CALL(func_set_attribute);
    auto* f = reinterpret_cast<FunctionState*>(function);
    if (attribute != FunctionAttribute::max_dynamic_shared_bytes) return kInvalidValue;
    if (value > fake.devices_[static_cast<std::size_t>(f->context->device)].shared_optin_bytes) return kInvalidValue;
    f->max_dynamic_shared = value;
    return kSuccess;
  }
  static Code occupancy_max_active_blocks(int* blocks, Function, int, std::size_t) {
    FAKE_CALL(occupancy_max_active_blocks);
    *blocks = 1;
    return kSuccess;
  }
  static Code launch_kernel_ex(const LaunchConfig* config, Function function, void** args, void**) {
    FakeLaunch launch;
    std::function<void(const FakeLaunch&)> play;
    Code result = kSuccess;
    bool captured = false;
    {
      FAKE_CALL(launch_kernel_ex);
      auto* f = reinterpret_cast<FunctionState*>(function);
      if (f->context->destroyed) return kContextIsDestroyed;
      StreamState* s = fake.stream_state(config->stream);
      if ((s != nullptr ? s->context : current_state()) != f->context) return kInvalidHandle;
      if (!f->loaded && fake.forbidden_in_capture()) return kCaptureUnsupported;
      const unsigned sizes[] = {config->grid_x, config->grid_y, config->grid_z, config->block_x, config->block_y, config->block_z};
      for (const unsigned size : sizes) {
        if (size == 0 || size > 0x7fffffffu) return kInvalidValue;
      }
      if (config->grid_y > 0xffffu || config->grid_z > 0xffffu) return kInvalidValue;
      if (config->shared_bytes > static_cast<unsigned>(f->max_dynamic_shared)) return kInvalidValue;
      launch.kernel = f->kernel->name;
      launch.function = function;
      launch.context_id = f->context->id;
      launch.grid_x = config->grid_x;
      launch.grid_y = config->grid_y;
      launch.grid_z = config->grid_z;
      launch.block_x = config->block_x;
      launch.shared_bytes = config->shared_bytes;
      launch.stream = config->stream;
      for (unsigned i = 0; i < config->attribute_count; ++i) {
        const LaunchAttribute& a = config->attributes[i];
        launch.pdl = launch.pdl || (a.id == kAttributeProgrammaticStreamSerialization && a.value.programmatic_stream_serialization_allowed == 1);
      }
      const u64 bytes = f->kernel->library->info.fact("w4moe_fact_args_bytes").value_or(0);
      const auto* first = static_cast<const std::byte*>(args[0]);
      launch.args.assign(first, first + bytes);
      play = fake.on_launch;
      result = fake.enqueue(config->stream, [] {}, &captured);
      launch.captured = captured;
      if (result == kSuccess) fake.launches_.push_back(launch);
    }
    if (result == kSuccess && !captured && play) play(launch);
    return result;
  }

  static Code mem_alloc(DevicePtr* pointer, std::size_t bytes) {
    FAKE_CALL(mem_alloc);
    if (fake.forbidden_in_capture()) return kCaptureUnsupported;
    if (current_state() == nullptr) return kInvalidContext;
    if (bytes == 0) return kInvalidValue;
    *pointer = reinterpret_cast<DevicePtr>(::operator new(bytes, std::align_val_t(4096)));
    std::memset(reinterpret_cast<void*>(*pointer), 0xcd, bytes);  // new memory holds no zeros, nor what an earlier test left
    fake.allocations_[*pointer] = {bytes, current_state()->device};
    return kSuccess;
  }
  static Code mem_free(DevicePtr pointer) {
    FAKE_CALL(mem_free);
    if (fake.allocations_.erase(pointer) == 0) return kInvalidValue;
    ::operator delete(reinterpret_cast<void*>(pointer), std::align_val_t(4096));
    return kSuccess;
  }
  static Code mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes) {
    FAKE_CALL(mem_get_info);
    *free_bytes = *total_bytes = std::size_t{1} << 37;
    return kSuccess;
  }
  static Code mem_host_alloc(void** pointer, std::size_t bytes, unsigned) {
    FAKE_CALL(mem_host_alloc);
    *pointer = ::operator new(bytes);
    return kSuccess;
  }
  static Code mem_free_host(void* pointer) {
    FAKE_CALL(mem_free_host);
    ::operator delete(pointer);
    return kSuccess;
  }
  static Code memcpy_htod(DevicePtr to, const void* from, std::size_t bytes) {
    FAKE_CALL(memcpy_htod);
    if (fake.forbidden_in_capture()) return kCaptureUnsupported;
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return kSuccess;
  }
  static Code memcpy_dtoh(void* to, DevicePtr from, std::size_t bytes) {
    FAKE_CALL(memcpy_dtoh);
    if (fake.forbidden_in_capture()) return kCaptureUnsupported;
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return kSuccess;
  }
  static Code memcpy_htod_async(DevicePtr to, const void* from, std::size_t bytes, Stream stream) {
    FAKE_CALL(memcpy_htod_async);
    return fake.enqueue(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  }
  static Code memcpy_dtoh_async(void* to, DevicePtr from, std::size_t bytes, Stream stream) {
    FAKE_CALL(memcpy_dtoh_async);
    return fake.enqueue(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  }
  static Code memcpy_dtod_async(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream) {
    FAKE_CALL(memcpy_dtod_async);
    return fake.enqueue(stream, [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
  }
  static Code memset_d8_async(DevicePtr to, unsigned char value, std::size_t bytes, Stream stream) {
    FAKE_CALL(memset_d8_async);
    return fake.enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  }
  static Code memset_d32_async(DevicePtr to, unsigned value, std::size_t words, Stream stream) {
    FAKE_CALL(memset_d32_async);
    return fake.enqueue(stream, [=] {
      for (std::size_t i = 0; i < words; ++i) std::memcpy(reinterpret_cast<char*>(to) + 4 * i, &value, 4);
    });
  }
  static Code pointer_get_attribute(void* value, PointerAttribute attribute, DevicePtr pointer) {
    FAKE_CALL(pointer_get_attribute);
    auto it = fake.allocations_.upper_bound(pointer);
    if (it == fake.allocations_.begin()) return kInvalidValue;
    --it;
    if (pointer >= it->first + it->second.bytes) return kInvalidValue;
    if (attribute == PointerAttribute::memory_type) {
      std::memcpy(value, &kMemoryTypeDevice, sizeof(unsigned));
    } else {
      std::memcpy(value, &it->second.device, sizeof(int));
    }
    return kSuccess;
  }
};

#undef FAKE_CALL

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
