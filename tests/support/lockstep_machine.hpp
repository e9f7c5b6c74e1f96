// The CPU that plays a GPU, as a machine of tests.
#pragma once

#include <cstring>
#include <memory>
#include <new>

#include "tests/support/machine.hpp"

namespace w4moe::test {

/// A block of its own for each tensor, so that AddressSanitizer sees what lies outside.
class HostBuffer final : public MachineBuffer {
 public:
  explicit HostBuffer(i64 bytes) : bytes_(bytes), memory_(static_cast<u8*>(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{kRegionAlignBytes}))) {}
  ~HostBuffer() override { ::operator delete(memory_, std::align_val_t{kRegionAlignBytes}); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void* data() override { return memory_; }
  i64 bytes() const override { return bytes_; }
  void upload(const void* from, i64 bytes, i64 offset_bytes) override { std::memcpy(memory_ + offset_bytes, from, static_cast<std::size_t>(bytes)); }
  void download(void* to, i64 bytes, i64 offset_bytes) override { std::memcpy(to, memory_ + offset_bytes, static_cast<std::size_t>(bytes)); }

 private:
  i64 bytes_;
  u8* memory_;
};

/// Kernels are cached in `cache_dir`.
inline EngineOptions lockstep_engine_options(const std::string& cache_dir) {
  EngineOptions options;
  options.device = EngineDevice::lockstep;
  options.kernels.cache_dir = cache_dir;
  return options;
}

class CpuMachine : public Machine {
 public:
  explicit CpuMachine(const std::string& cache_dir) : engine_(value_of(Engine::create(lockstep_engine_options(cache_dir)))) {}
  Engine& engine() override { return engine_; }
  std::unique_ptr<MachineBuffer> allocate(i64 bytes) override { return std::make_unique<HostBuffer>(bytes); }
  void wait() override {}
  bool is_large() const override { return false; }

 private:
  Engine engine_;
};

}  // namespace w4moe::test
