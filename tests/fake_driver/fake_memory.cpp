// Memory: all of it is host memory.
#include <cstring>
#include <new>

#include "tests/fake_driver/fake_functions.hpp"
#include "tests/fake_driver/fake_table.hpp"

namespace w4moe::test {

Code FakeFunctions::mem_alloc(DevicePtr* pointer, std::size_t bytes) {
  FAKE_CALL(mem_alloc);
  if (fake.forbidden_in_capture()) return kCaptureUnsupported;
  if (current_state() == nullptr) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  *pointer = reinterpret_cast<DevicePtr>(::operator new(bytes, std::align_val_t(4096)));
  std::memset(reinterpret_cast<void*>(*pointer), 0xcd, bytes);  // new memory holds no zeros, nor what an earlier test left
  fake.allocations_[*pointer] = {bytes, current_state()->device};
  return kSuccess;
}

Code FakeFunctions::mem_free(DevicePtr pointer) {
  FAKE_CALL(mem_free);
  if (fake.allocations_.erase(pointer) == 0) return kInvalidValue;
  ::operator delete(reinterpret_cast<void*>(pointer), std::align_val_t(4096));
  return kSuccess;
}

Code FakeFunctions::mem_get_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  FAKE_CALL(mem_get_info);
  *free_bytes = *total_bytes = std::size_t{1} << 37;
  return kSuccess;
}

Code FakeFunctions::mem_host_alloc(void** pointer, std::size_t bytes, unsigned) {
  FAKE_CALL(mem_host_alloc);
  *pointer = ::operator new(bytes);
  return kSuccess;
}

Code FakeFunctions::mem_free_host(void* pointer) {
  FAKE_CALL(mem_free_host);
  ::operator delete(pointer);
  return kSuccess;
}

Code FakeFunctions::memcpy_htod(DevicePtr to, const void* from, std::size_t bytes) {
  FAKE_CALL(memcpy_htod);
  if (fake.forbidden_in_capture()) return kCaptureUnsupported;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}

Code FakeFunctions::memcpy_dtoh(void* to, DevicePtr from, std::size_t bytes) {
  FAKE_CALL(memcpy_dtoh);
  if (fake.forbidden_in_capture()) return kCaptureUnsupported;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return kSuccess;
}

Code FakeFunctions::memcpy_htod_async(DevicePtr to, const void* from, std::size_t bytes, Stream stream) {
  FAKE_CALL(memcpy_htod_async);
  return fake.enqueue(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
}

Code FakeFunctions::memcpy_dtoh_async(void* to, DevicePtr from, std::size_t bytes, Stream stream) {
  FAKE_CALL(memcpy_dtoh_async);
  return fake.enqueue(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}

Code FakeFunctions::memcpy_dtod_async(DevicePtr to, DevicePtr from, std::size_t bytes, Stream stream) {
  FAKE_CALL(memcpy_dtod_async);
  return fake.enqueue(stream, [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
}

Code FakeFunctions::memset_d8_async(DevicePtr to, unsigned char value, std::size_t bytes, Stream stream) {
  FAKE_CALL(memset_d8_async);
  return fake.enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}

Code FakeFunctions::memset_d32_async(DevicePtr to, unsigned value, std::size_t words, Stream stream) {
  FAKE_CALL(memset_d32_async);
  return fake.enqueue(stream, [=] {
    for (std::size_t i = 0; i < words; ++i) std::memcpy(reinterpret_cast<char*>(to) + 4 * i, &value, 4);
  });
}

Code FakeFunctions::pointer_get_attribute(void* value, PointerAttribute attribute, DevicePtr pointer) {
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

}  // namespace w4moe::test
