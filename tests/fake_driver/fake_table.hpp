// Inside of the fake driver.
#pragma once

#include "tests/fake_driver/fake_driver.hpp"

namespace w4moe::test {

/// The functions that FakeDriver stands behind.
driver::DriverTable fake_table();

FakeDriver* fake_instance();
const void* this_thread();

extern thread_local std::vector<driver::Context> context_stack;
extern thread_local driver::CaptureMode thread_capture_mode;

}  // namespace w4moe::test
