// Devices, contexts and errors.
#include <cstring>

#include "tests/fake_driver/fake_functions.hpp"
#include "tests/fake_driver/fake_table.hpp"

namespace w4moe::test {

Code FakeFunctions::init(unsigned) {
  FAKE_CALL(init);
  fake.initialized_ = true;
  return fake.devices_.empty() ? kNoDevice : kSuccess;
}

Code FakeFunctions::driver_get_version(int* version) {
  FAKE_CALL(driver_get_version);
  *version = 13000;
  return kSuccess;
}

Code FakeFunctions::get_error_name(Code code, const char** name) {
  *name = code == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : code == kInvalidImage ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_FAKE";
  return kSuccess;
}

Code FakeFunctions::get_error_string(Code code, const char** text) {
  *text = code == kOutOfMemory ? "out of memory" : "a fake error";
  return kSuccess;
}

Code FakeFunctions::device_get(Device* device, int ordinal) {
  FAKE_CALL(device_get);
  *device = ordinal;
  return kSuccess;
}

Code FakeFunctions::device_get_count(int* count) {
  FAKE_CALL(device_get_count);
  *count = static_cast<int>(fake.devices_.size());
  return kSuccess;
}

Code FakeFunctions::device_get_name(char* name, int bytes, Device device) {
  FAKE_CALL(device_get_name);
  std::strncpy(name, fake.devices_[static_cast<std::size_t>(device)].name.c_str(), static_cast<std::size_t>(bytes));
  return kSuccess;
}

Code FakeFunctions::device_get_attribute(int* value, DeviceAttribute attribute, Device device) {
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

Code FakeFunctions::device_primary_ctx_retain(Context* context, Device device) {
  FAKE_CALL(device_primary_ctx_retain);
  fake.contexts_.push_back(ContextState{fake.contexts_.size() + 100, device, false, {}});
  *context = reinterpret_cast<Context>(&fake.contexts_.back());
  return kSuccess;
}

Code FakeFunctions::device_primary_ctx_release(Device) {
  FAKE_CALL(device_primary_ctx_release);
  return kSuccess;
}

Code FakeFunctions::ctx_create(Context* context, unsigned, Device device) {
  FAKE_CALL(ctx_create);
  fake.contexts_.push_back(ContextState{fake.contexts_.size() + 100, device, false, {}});
  *context = reinterpret_cast<Context>(&fake.contexts_.back());
  context_stack.push_back(*context);
  return kSuccess;
}

Code FakeFunctions::ctx_destroy(Context context) {
  FAKE_CALL(ctx_destroy);
  state(context)->destroyed = true;
  return kSuccess;
}

Code FakeFunctions::ctx_get_current(Context* context) {
  FAKE_CALL(ctx_get_current);
  if (!fake.initialized_) return kNotInitialized;
  *context = FakeDriver::current();
  return kSuccess;
}

Code FakeFunctions::ctx_push_current(Context context) {
  FAKE_CALL(ctx_push_current);
  if (state(context)->destroyed) return kContextIsDestroyed;
  context_stack.push_back(context);
  return kSuccess;
}

Code FakeFunctions::ctx_pop_current(Context* context) {
  FAKE_CALL(ctx_pop_current);
  if (context_stack.empty()) return kInvalidContext;
  *context = context_stack.back();
  context_stack.pop_back();
  return kSuccess;
}

Code FakeFunctions::ctx_get_device(Device* device) {
  FAKE_CALL(ctx_get_device);
  if (current_state() == nullptr) return kInvalidContext;
  *device = current_state()->device;
  return kSuccess;
}

Code FakeFunctions::ctx_get_id(Context context, unsigned long long* id) {
  FAKE_CALL(ctx_get_id);
  *id = state(context)->id;
  return kSuccess;
}

Code FakeFunctions::ctx_synchronize() {
  FAKE_CALL(ctx_synchronize);
  return fake.forbidden_in_capture() ? kCaptureUnsupported : kSuccess;
}

}  // namespace w4moe::test
