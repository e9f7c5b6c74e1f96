// What the handles of the C interface hold, and the edge that nothing is thrown across. For runtime/capi and its tests.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "w4moe/engine.hpp"
#include "w4moe/w4moe.h"

namespace w4moe::capi {

/// An engine with what its options said; shared by the handle and the bindings made from it, so that they may be freed in any order.
struct EngineState {
  explicit EngineState(Engine made) : engine(std::move(made)) {}

  Engine engine;
  KernelOptions kernels;
  int32_t device = W4MOE_DEVICE_CURRENT;
  int ordinal = 0;
  const driver::DriverTable* driver = nullptr;  ///< null: libcuda's

  void remember(const char* text) noexcept;
  std::string last_error() const;

 private:
  mutable std::mutex mutex_;
  std::string last_error_;
};

/// An engine from C++ options, for the conversion of the C ones and for tests with a driver of their own.
Result<std::shared_ptr<EngineState>> make_engine(EngineOptions options, int32_t device, int ordinal);

/// Keeps the error as the thread's last one, and the engine's where there is one.
w4moe_status fail(EngineState* state, const Error& error) noexcept;
w4moe_status fail(EngineState* state, w4moe_status status, const char* text) noexcept;

/// Calls `body`, which returns a Status; whatever it throws becomes a status.
template <class F>
w4moe_status call(EngineState* state, F&& body) noexcept {
  try {
    const Status status = std::forward<F>(body)();
    return status ? W4MOE_OK : fail(state, status.error());
  } catch (const std::bad_alloc&) {
    return fail(state, W4MOE_OUT_OF_HOST_MEMORY, "out of host memory");
  } catch (const std::exception& e) {
    return fail(state, W4MOE_INTERNAL, e.what());
  } catch (...) {
    return fail(state, W4MOE_INTERNAL, "something that is no std::exception was thrown, by a callback perhaps");
  }
}

/// Copies as much of a text as there is room for, and a zero byte. Returns what the whole takes.
size_t copy_text(const std::string& text, char* buffer, size_t buffer_bytes);

/// The error for a handle or pointer that must not be null.
Error null_argument(const char* name);

}  // namespace w4moe::capi

struct w4moe_engine {
  std::shared_ptr<w4moe::capi::EngineState> state;
};

struct w4moe_plan {
  w4moe::Plan plan;
  std::once_flag explained, told;
  std::string explanation, json;
};

struct w4moe_binding {
  std::shared_ptr<w4moe::capi::EngineState> state;
  w4moe::Binding binding;
};
