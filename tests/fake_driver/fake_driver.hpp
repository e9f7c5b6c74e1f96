// A CUDA driver that records: host memory stands for device memory, launches are written down instead of run, and the rules that
// the real driver has for contexts and captures are kept, so that breaking one shows without a GPU.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "generator/compile/cubin_info.hpp"
#include "runtime/driver/driver_api.hpp"

namespace w4moe::test {

struct FakeDevice {
  std::string name = "Fake H200";
  int major = 9;
  int minor = 0;
  int sms = 132;
  int shared_optin_bytes = 232448;
  int shared_per_sm_bytes = 233472;
};

struct FakeLaunch {
  std::string kernel;           ///< symbol, "w4moe_fc1"
  driver::Function function = nullptr;
  unsigned long long context_id = 0;
  unsigned grid_x = 0, grid_y = 0, grid_z = 0;
  unsigned block_x = 0;
  unsigned shared_bytes = 0;
  bool pdl = false;
  driver::Stream stream = nullptr;
  bool captured = false;
  std::vector<std::byte> args;  ///< as many bytes as the cubin says

  template <class Args>
  const Args& as() const {
    return *reinterpret_cast<const Args*>(args.data());
  }
};

/// One instance at a time: the table's functions are plain functions and find it by a global. Thread-safe.
class FakeDriver {
 public:
  explicit FakeDriver(std::vector<FakeDevice> devices = {FakeDevice{}});
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const driver::DriverTable& table() const { return table_; }
  /// For tests that take a function away.
  driver::DriverTable& table() { return table_; }

  /// A context on a device; made current on the calling thread if asked.
  driver::Context make_context(int device = 0, bool make_current = true);
  static void set_current(driver::Context context);
  static driver::Context current();
  driver::Stream make_stream(bool blocking = false);

  /// Calls so far, by the table's name ("launch_kernel_ex"); all of them in order.
  int count(const std::string& call) const;
  std::vector<std::string> calls() const;
  void clear_calls();
  std::vector<FakeLaunch> launches() const;

  /// From the next call on, `call` fails with `code` after `successes` more successes, until cleared.
  void fail(const std::string& call, driver::Code code, int successes = 0);
  void clear_failures();

  int live_libraries() const;
  /// Bytes of live allocations made through mem_alloc.
  std::size_t allocated_bytes() const;
  /// Called for each launch that runs, to play the kernel's part on host memory. A capture runs nothing.
  std::function<void(const FakeLaunch&)> on_launch;

 private:
  friend struct FakeFunctions;
  friend driver::DriverTable fake_table();

  struct ContextState {
    unsigned long long id;
    int device;
    bool destroyed = false;
    std::set<driver::Stream> streams;
  };
  struct GraphState {
    std::vector<std::function<void()>> nodes;
  };
  struct StreamState {
    ContextState* context;
    bool blocking = false;
    driver::CaptureStatus capture = driver::CaptureStatus::none;
    driver::CaptureMode mode = driver::CaptureMode::global;
    const void* capturing_thread = nullptr;
    std::unique_ptr<GraphState> graph;
  };
  struct LibraryState {
    CubinInfo info;
  };
  struct KernelState {
    LibraryState* library;
    std::string name;
  };
  struct FunctionState {
    KernelState* kernel;
    ContextState* context;
    int max_dynamic_shared = 48 * 1024;
    bool loaded = false;
  };
  struct Allocation {
    std::size_t bytes;
    int device;
  };

  // The callers of these hold mutex_.
  driver::Code record(const char* call);
  StreamState* stream_state(driver::Stream stream);
  /// Calls that a capture in progress forbids to this thread: such a call invalidates the capture.
  bool forbidden_in_capture();
  driver::Code enqueue(driver::Stream stream, std::function<void()> work, bool* captured = nullptr);

  driver::DriverTable table_;
  mutable std::mutex mutex_;
  std::vector<FakeDevice> devices_;
  bool initialized_ = false;
  std::vector<std::string> calls_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::pair<driver::Code, int>> failures_;
  std::vector<FakeLaunch> launches_;
  std::deque<ContextState> contexts_;
  std::map<driver::Stream, std::unique_ptr<StreamState>> streams_;
  std::map<driver::Library, std::unique_ptr<LibraryState>> libraries_;
  std::map<std::pair<LibraryState*, std::string>, std::unique_ptr<KernelState>> kernels_;
  std::map<std::pair<KernelState*, ContextState*>, std::unique_ptr<FunctionState>> functions_;
  std::map<GraphState*, std::unique_ptr<GraphState>> graphs_;
  std::map<driver::DevicePtr, Allocation> allocations_;
};

}  // namespace w4moe::test
