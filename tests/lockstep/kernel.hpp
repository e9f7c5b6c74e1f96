// Kernels that are lambdas of the test program: what a test wants of the device in a few lines.
#pragma once

#include <vector>

#include "device/ops.h"
#include "runtime/lockstep/fiber.hpp"
#include "tests/lockstep/support.hpp"

namespace w4moe::lockstep {

/// `body()` as the kernel of every thread. The body is a capturing lambda that calls ops:: like any kernel, and must outlive the
/// launch; its address is the argument. ThreadSanitizer does not look at it: these bodies share the test's own variables.
template <class Body>
Kernel kernel_of(const Body&, const char* name) {
  return Kernel::from_function(name, [](const void* args) {
    const IgnoreAccesses ignore;
    (**static_cast<const Body* const*>(args))();
  });
}

template <class Body>
Status run_threads(LockstepDevice& device, const Launch& grid, const Body& body, const char* name = "test") {
  const Body* pointer = &body;
  return device.launch(kernel_of(body, name), grid, pointer);
}

template <class Body>
Status run_threads(const Launch& grid, const Body& body) {
  LockstepDevice device;
  return run_threads(device, grid, body);
}

/// A stream of bodies, each with its grid.
class Stream {
 public:
  template <class Body>
  void add(const Launch& grid, const Body& body, const char* name) {
    pointers_.push_back(std::make_unique<const void*>(&body));
    queue_.push_back({kernel_of(body, name), grid, pointers_.back().get(), sizeof(void*)});
  }
  Status run(const Options& options = {}) {
    LockstepDevice device(options);
    return device.launch(queue_);
  }

 private:
  std::vector<std::unique_ptr<const void*>> pointers_;
  std::vector<QueuedLaunch> queue_;
};

/// Runs the body and expects a report that contains `text`.
template <class Body>
void expect_report(const Launch& grid, const char* text, const Body& body) {
  const Status status = run_threads(grid, body);
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Catch::Contains(text));
}

}  // namespace w4moe::lockstep
