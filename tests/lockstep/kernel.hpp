// Kernels that are lambdas of the test program: what a test wants of the device in a few lines.
#pragma once

#include "device/ops.h"
#include "runtime/lockstep/fiber.hpp"
#include "tests/lockstep/support.hpp"

namespace w4moe::lockstep {

/// Runs `body()` as the kernel of every thread. The body is a capturing lambda; it calls ops:: like any kernel. ThreadSanitizer
/// does not look at it: these bodies share the test's own variables.
template <class Body>
Status run_threads(LockstepDevice& device, const Launch& grid, const Body& body, const char* name = "test") {
  const Body* pointer = &body;
  const Kernel kernel = Kernel::from_function(name, [](const void* args) {
    const IgnoreAccesses ignore;
    (**static_cast<const Body* const*>(args))();
  });
  return device.launch(kernel, grid, pointer);
}

template <class Body>
Status run_threads(const Launch& grid, const Body& body) {
  LockstepDevice device;
  return run_threads(device, grid, body);
}

/// Runs one warp and expects a report that contains `text`.
template <class Body>
void expect_report(const Launch& grid, const char* text, const Body& body) {
  const Status status = run_threads(grid, body);
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Catch::Contains(text));
}

}  // namespace w4moe::lockstep
