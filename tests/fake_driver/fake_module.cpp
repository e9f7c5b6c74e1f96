// Libraries, kernels and launches.
#include <cstring>

#include "tests/fake_driver/fake_functions.hpp"
#include "tests/fake_driver/fake_table.hpp"

namespace w4moe::test {

Code FakeFunctions::library_load_data(Library* library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
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

Code FakeFunctions::library_unload(Library library) {
  FAKE_CALL(library_unload);
  if (fake.forbidden_in_capture()) return kCaptureUnsupported;
  return fake.libraries_.erase(library) == 1 ? kSuccess : kInvalidHandle;
}

Code FakeFunctions::library_get_kernel(Kernel* kernel, Library library, const char* name) {
  FAKE_CALL(library_get_kernel);
  auto* lib = reinterpret_cast<LibraryState*>(library);
  if (lib->info.kernel(name) == nullptr) return kNotFound;
  auto& slot = fake.kernels_[{lib, name}];
  slot = std::make_unique<KernelState>(KernelState{lib, name});
  *kernel = reinterpret_cast<Kernel>(slot.get());
  return kSuccess;
}

Code FakeFunctions::kernel_get_function(Function* function, Kernel kernel) {
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

Code FakeFunctions::func_load(Function function) {
  FAKE_CALL(func_load);
  reinterpret_cast<FunctionState*>(function)->loaded = true;
  return kSuccess;
}

Code FakeFunctions::func_get_attribute(int* value, FunctionAttribute attribute, Function function) {
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

Code FakeFunctions::func_set_attribute(Function function, FunctionAttribute attribute, int value) {
  FAKE_CALL(func_set_attribute);
  auto* f = reinterpret_cast<FunctionState*>(function);
  if (attribute != FunctionAttribute::max_dynamic_shared_bytes) return kInvalidValue;
  if (value > fake.devices_[static_cast<std::size_t>(f->context->device)].shared_optin_bytes) return kInvalidValue;
  f->max_dynamic_shared = value;
  return kSuccess;
}

Code FakeFunctions::occupancy_max_active_blocks(int* blocks, Function, int, std::size_t) {
  FAKE_CALL(occupancy_max_active_blocks);
  *blocks = 1;
  return kSuccess;
}

Code FakeFunctions::launch_kernel_ex(const LaunchConfig* config, Function function, void** args, void**) {
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

}  // namespace w4moe::test
