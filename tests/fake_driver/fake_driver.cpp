#include "tests/fake_driver/fake_driver.hpp"

#include "tests/fake_driver/fake_table.hpp"

namespace w4moe::test {
namespace {

FakeDriver* instance = nullptr;

}  // namespace

thread_local std::vector<driver::Context> context_stack;
thread_local driver::CaptureMode thread_capture_mode = driver::CaptureMode::global;

FakeDriver* fake_instance() { return instance; }

const void* this_thread() {
  thread_local char address;
  return &address;
}

FakeDriver::FakeDriver(std::vector<FakeDevice> devices) : table_(fake_table()), devices_(std::move(devices)) {
  instance = this;
  context_stack.clear();
}

FakeDriver::~FakeDriver() {
  for (const auto& [pointer, allocation] : allocations_) ::operator delete(reinterpret_cast<void*>(pointer), std::align_val_t(4096));
  context_stack.clear();
  instance = nullptr;
}

driver::Context FakeDriver::make_context(int device, bool make_current) {
  const std::lock_guard lock(mutex_);
  initialized_ = true;
  contexts_.push_back(ContextState{contexts_.size() + 100, device, false, {}});
  const auto handle = reinterpret_cast<driver::Context>(&contexts_.back());
  if (make_current) set_current(handle);
  return handle;
}

void FakeDriver::set_current(driver::Context context) {
  context_stack.clear();
  if (context != nullptr) context_stack.push_back(context);
}

driver::Context FakeDriver::current() { return context_stack.empty() ? nullptr : context_stack.back(); }

driver::Stream FakeDriver::make_stream(bool blocking) {
  driver::Stream stream = nullptr;
  table_.stream_create(&stream, blocking ? 0 : driver::kStreamNonBlocking);
  return stream;
}

int FakeDriver::count(const std::string& call) const {
  const std::lock_guard lock(mutex_);
  const auto it = counts_.find(call);
  return it == counts_.end() ? 0 : it->second;
}

std::vector<std::string> FakeDriver::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void FakeDriver::clear_calls() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
  counts_.clear();
  launches_.clear();
}

std::vector<FakeLaunch> FakeDriver::launches() const {
  const std::lock_guard lock(mutex_);
  return launches_;
}

void FakeDriver::fail(const std::string& call, driver::Code code, int successes) {
  const std::lock_guard lock(mutex_);
  failures_[call] = {code, successes};
}

void FakeDriver::clear_failures() {
  const std::lock_guard lock(mutex_);
  failures_.clear();
}

int FakeDriver::live_libraries() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(libraries_.size());
}

std::size_t FakeDriver::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [pointer, allocation] : allocations_) bytes += allocation.bytes;
  return bytes;
}

driver::Code FakeDriver::record(const char* call) {
  calls_.emplace_back(call);
  ++counts_[call];
  const auto it = failures_.find(call);
  if (it == failures_.end()) return driver::kSuccess;
  if (it->second.second > 0) {
    --it->second.second;
    return driver::kSuccess;
  }
  return it->second.first;
}

FakeDriver::StreamState* FakeDriver::stream_state(driver::Stream stream) {
  const auto it = streams_.find(stream);
  return it == streams_.end() ? nullptr : it->second.get();
}

bool FakeDriver::forbidden_in_capture() {
  if (thread_capture_mode == driver::CaptureMode::relaxed) return false;
  bool forbidden = false;
  for (auto& [handle, stream] : streams_) {
    if (stream->capture != driver::CaptureStatus::active || stream->mode == driver::CaptureMode::relaxed) continue;
    const bool own = stream->capturing_thread == this_thread();
    if (!own && (stream->mode == driver::CaptureMode::thread_local_ || thread_capture_mode == driver::CaptureMode::thread_local_)) continue;
    stream->capture = driver::CaptureStatus::invalidated;
    forbidden = true;
  }
  return forbidden;
}

driver::Code FakeDriver::enqueue(driver::Stream stream, std::function<void()> work, bool* captured) {
  if (StreamState* state = stream_state(stream)) {
    if (state->capture == driver::CaptureStatus::invalidated) return driver::kCaptureInvalidated;
    if (state->capture == driver::CaptureStatus::active) {
      state->graph->nodes.push_back(std::move(work));
      if (captured != nullptr) *captured = true;
      return driver::kSuccess;
    }
  } else {
    // The legacy stream waits for every blocking stream: while one of them captures, work in it breaks the capture.
    for (auto& [handle, other] : streams_) {
      if (other->blocking && other->capture == driver::CaptureStatus::active) {
        other->capture = driver::CaptureStatus::invalidated;
        return driver::kCaptureImplicit;
      }
    }
  }
  work();
  return driver::kSuccess;
}

}  // namespace w4moe::test
