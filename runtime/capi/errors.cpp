#include <algorithm>
#include <cstring>

#include "runtime/capi/handles.hpp"

namespace w4moe::capi {
namespace {

thread_local std::string last_text;
thread_local const char* last_shown = "";

constexpr const char* kOutOfHostMemory = "out of host memory";

void remember_on_thread(const char* text) noexcept {
  try {
    last_text = text;
    last_shown = last_text.c_str();
  } catch (...) {
    last_shown = kOutOfHostMemory;
  }
}

w4moe_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return W4MOE_INVALID_ARGUMENT;
    case ErrorCode::unsupported: return W4MOE_UNSUPPORTED;
    case ErrorCode::toolchain_missing: return W4MOE_TOOLCHAIN_MISSING;
    case ErrorCode::compile_failed: return W4MOE_COMPILE_FAILED;
    case ErrorCode::io: return W4MOE_IO;
    case ErrorCode::corrupt: return W4MOE_CORRUPT;
    case ErrorCode::driver: return W4MOE_DRIVER;
    case ErrorCode::not_prepared: return W4MOE_NOT_PREPARED;
    case ErrorCode::internal: return W4MOE_INTERNAL;
  }
  return W4MOE_INTERNAL;
}

}  // namespace

void EngineState::remember(const char* text) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    last_error_ = text;
  } catch (...) {  // the thread's own text says what happened
  }
}

std::string EngineState::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

w4moe_status fail(EngineState* state, w4moe_status status, const char* text) noexcept {
  remember_on_thread(text);
  if (state != nullptr) state->remember(text);
  return status;
}

w4moe_status fail(EngineState* state, const Error& error) noexcept {
  // The C++ side has no code of its own for this (runtime/guarded.hpp).
  const bool memory = error.code == ErrorCode::internal && error.message == kOutOfHostMemory;
  return fail(state, memory ? static_cast<w4moe_status>(W4MOE_OUT_OF_HOST_MEMORY) : status_of(error.code), error.message.c_str());
}

size_t copy_text(const std::string& text, char* buffer, size_t buffer_bytes) {
  if (buffer != nullptr && buffer_bytes > 0) {
    const size_t copied = std::min(text.size(), buffer_bytes - 1);
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = 0;
  }
  return text.size() + 1;
}

Error null_argument(const char* name) { return Error{ErrorCode::invalid_argument, std::string(name) + " is NULL"}; }

}  // namespace w4moe::capi

extern "C" {

uint32_t w4moe_abi_version(void) { return W4MOE_ABI_VERSION; }

const char* w4moe_version(void) { return W4MOE_VERSION_TEXT; }

const char* w4moe_status_name(w4moe_status status) {
  switch (status) {
    case W4MOE_OK: return "ok";
    case W4MOE_INVALID_ARGUMENT: return "invalid_argument";
    case W4MOE_UNSUPPORTED: return "unsupported";
    case W4MOE_TOOLCHAIN_MISSING: return "toolchain_missing";
    case W4MOE_COMPILE_FAILED: return "compile_failed";
    case W4MOE_IO: return "io";
    case W4MOE_CORRUPT: return "corrupt";
    case W4MOE_DRIVER: return "driver";
    case W4MOE_NOT_PREPARED: return "not_prepared";
    case W4MOE_INTERNAL: return "internal";
    case W4MOE_OUT_OF_HOST_MEMORY: return "out_of_host_memory";
    default: return "unknown";
  }
}

const char* w4moe_last_error(void) { return w4moe::capi::last_shown; }

}  // extern "C"
