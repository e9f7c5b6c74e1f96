// Settings of the calling thread that a block changes and restores.
#pragma once

#include "runtime/driver/driver_api.hpp"

namespace w4moe::driver {

/// Makes a context current for a block, and the caller's one current again afterwards. Does nothing where it is current already.
class ScopedContext {
 public:
  ScopedContext(const DriverTable& table, Context context) : table_(table) {
    Context current = nullptr;
    code_ = table_.ctx_get_current(&current);
    if (code_ != kSuccess || current == context) return;
    code_ = table_.ctx_push_current(context);
    pushed_ = code_ == kSuccess;
  }
  ~ScopedContext() {
    Context popped = nullptr;
    if (pushed_) table_.ctx_pop_current(&popped);
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  Code code() const { return code_; }

 private:
  const DriverTable& table_;
  Code code_ = kSuccess;
  bool pushed_ = false;
};

/// Loading and unloading code is no stream work, so that a capture that runs in another thread need not be invalidated by it:
/// the relaxed mode says so to the driver, for this thread and this block.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverTable& table) : table_(table) {
    exchanged_ = table_.thread_exchange_stream_capture_mode(&mode_) == kSuccess;
  }
  ~RelaxedCapture() {
    if (exchanged_) table_.thread_exchange_stream_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverTable& table_;
  CaptureMode mode_ = CaptureMode::relaxed;
  bool exchanged_ = false;
};

}  // namespace w4moe::driver
