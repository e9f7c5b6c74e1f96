#include "runtime/driver/driver_api.hpp"

#include "runtime/driver/current_device.hpp"
#include "tests/support/env_guard.hpp"
#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

TEST_CASE("driver: a missing libcuda names every file that was tried") {
  const std::string message = error_of(driver::load_driver({"libw4moe-no-such.so.1", "libw4moe-nor-this.so"}), ErrorCode::toolchain_missing);
  CHECK(message.find("libw4moe-no-such.so.1") != std::string::npos);
  CHECK(message.find("libw4moe-nor-this.so") != std::string::npos);
}

TEST_CASE("driver: a library that is no driver is told from a missing one") {
  const std::string message = error_of(driver::load_driver({"libm.so.6"}), ErrorCode::toolchain_missing);
  CHECK(message.find("cuGetProcAddress") != std::string::npos);
}

TEST_CASE("driver: a driver of 12.0 is enough; later functions are used where the driver has them") {
  const EnvGuard missing("W4MOE_STUB_MISSING", std::nullopt);
  {
    const EnvGuard version("W4MOE_STUB_VERSION", "12000");
    const driver::DriverTable table = must(driver::load_driver({W4MOE_STUB_LIBCUDA}));
    CHECK(table.launch_kernel_ex != nullptr);
    CHECK(table.func_load == nullptr);
    CHECK(table.stream_get_ctx_green == nullptr);
  }
  const EnvGuard version("W4MOE_STUB_VERSION", "12080");
  const driver::DriverTable table = must(driver::load_driver({"libw4moe-no-such.so", W4MOE_STUB_LIBCUDA}));
  CHECK(table.func_load != nullptr);
  CHECK(table.stream_get_ctx_green != nullptr);
}

TEST_CASE("driver: a function that the driver lacks is named") {
  const EnvGuard version("W4MOE_STUB_VERSION", "12000");
  const EnvGuard missing("W4MOE_STUB_MISSING", "cuLibraryUnload");
  const std::string message = error_of(driver::load_driver({W4MOE_STUB_LIBCUDA}), ErrorCode::toolchain_missing);
  CHECK(message.find("cuLibraryUnload") != std::string::npos);
  CHECK(message.find("12.0") != std::string::npos);
}

TEST_CASE("driver: the toolkit's stub library is told from a driver") {
  const EnvGuard version("W4MOE_STUB_VERSION", "0");
  CHECK(error_of(driver::load_driver({W4MOE_STUB_LIBCUDA}), ErrorCode::toolchain_missing).find("stub") != std::string::npos);
}

TEST_CASE("driver: errors carry the call, the code's name, its number and its text") {
  FakeDriver fake;
  const Status s = driver::check(fake.table(), driver::kOutOfMemory, "cuMemAlloc");
  CHECK(error_of(s, ErrorCode::driver) == "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
  CHECK(driver::version_text(fake.table()) == "13.0");
}

TEST_CASE("C28: code for an 'a' target runs on its own capability only, other code on later minors of its major") {
  using driver::runs_on;
  CHECK(runs_on(Arch::sm_90a, 9, 0));
  CHECK_FALSE(runs_on(Arch::sm_90a, 10, 0));
  CHECK(runs_on(Arch::sm_100a, 10, 0));
  CHECK_FALSE(runs_on(Arch::sm_100a, 10, 3));
  CHECK(runs_on(Arch::sm_103a, 10, 3));
  CHECK_FALSE(runs_on(Arch::sm_120a, 12, 1));
  CHECK(runs_on(Arch::sm_121a, 12, 1));
  CHECK(runs_on(Arch::sm_80, 8, 9));
  CHECK(runs_on(Arch::sm_86, 8, 9));
  CHECK_FALSE(runs_on(Arch::sm_89, 8, 6));
  CHECK_FALSE(runs_on(Arch::sm_80, 9, 0));
}

TEST_CASE("driver: a device's facts are read off its attributes") {
  FakeDriver fake({FakeDevice{"Card A", 9, 0, 132, 232448, 233472}, FakeDevice{"Card B", 12, 1, 48, 101376, 102400}});
  const DeviceSpec b = must(driver::device_spec(fake.table(), 1));
  CHECK(b.name == "Card B");
  CHECK(b.arch == Arch::sm_121a);
  CHECK(b.sms == 48);
  CHECK(b.shared_optin_bytes == 101376);
  CHECK(b.shared_per_sm_bytes == 102400);
  CHECK(b.registers_per_sm == 65536);
  CHECK(b.max_threads_per_sm == 2048);
}

TEST_CASE("driver: an unknown capability is an error that lists the known targets") {
  FakeDriver fake({FakeDevice{"Card of the future", 13, 0, 200, 232448, 233472}});
  const std::string message = error_of(driver::device_spec(fake.table(), 0), ErrorCode::unsupported);
  CHECK(message.find("13.0") != std::string::npos);
  CHECK(message.find("9.0") != std::string::npos);
}

TEST_CASE("driver: device memory keeps to its range") {
  FakeWorld world;
  const driver::DeviceBuffer buffer = must(driver::DeviceBuffer::allocate(world.driver.table(), 16));
  char bytes[16] = {};
  must(buffer.upload(bytes, 16));
  error_of(buffer.upload(bytes, 16, 1), ErrorCode::invalid_argument);
  error_of(buffer.download(bytes, -1), ErrorCode::invalid_argument);
  error_of(buffer.download(bytes, 1, -1), ErrorCode::invalid_argument);
  error_of(driver::DeviceBuffer::allocate(world.driver.table(), -1), ErrorCode::invalid_argument);
}
