// A GPU as a machine of tests.
#pragma once

#include <memory>

#include "tests/support/device_layer.hpp"
#include "tests/support/machine.hpp"

namespace w4moe::test {

class GpuBuffer final : public MachineBuffer {
 public:
  GpuBuffer(const driver::DriverTable& table, i64 bytes) : memory_(value_of(driver::DeviceBuffer::allocate(table, bytes))) {}
  void* data() override { return memory_.data(); }
  i64 bytes() const override { return memory_.bytes(); }
  void upload(const void* from, i64 bytes, i64 offset_bytes) override { succeeds(memory_.upload(from, bytes, offset_bytes)); }
  void download(void* to, i64 bytes, i64 offset_bytes) override { succeeds(memory_.download(to, bytes, offset_bytes)); }

 private:
  driver::DeviceBuffer memory_;
};

class GpuMachine final : public Machine {
 public:
  /// `is_large` false: the small shapes, for tools under which everything takes a hundred times as long.
  explicit GpuMachine(const Gpu& gpu, bool is_large = true) : table_(*gpu.table), is_large_(is_large), engine_(value_of(Engine::create(gpu_engine_options()))) {}
  Engine& engine() override { return engine_; }
  std::unique_ptr<MachineBuffer> allocate(i64 bytes) override { return std::make_unique<GpuBuffer>(table_, bytes); }
  void wait() override { succeeds(driver::check(table_, table_.ctx_synchronize(), "cuCtxSynchronize")); }
  bool is_large() const override { return is_large_; }

 private:
  const driver::DriverTable& table_;
  bool is_large_;
  Engine engine_;
};

}  // namespace w4moe::test

/// Skips where there is no GPU.
#define W4MOE_GPU_MACHINE(machine) \
  W4MOE_NEED_GPU(gpu);             \
  w4moe::test::GpuMachine machine(gpu)
