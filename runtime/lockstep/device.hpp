// The lock-step device: runs the very kernel sources of templates/kernels on the host, without a GPU, one fiber per CUDA thread.
//
//   auto device = LockstepDevice({.random = true, .seed = 7});
//   auto kernel = device.load({"fc1", entry_text, {{"w4moe_variant.h", variant_text}}, "w4moe_fc1"});
//   auto status = device.launch(*kernel, {.grid_x = 7, .grid_y = 5, .threads = 256, .shared_bytes = bytes}, args);
//
// Kernels are compiled by the machine's C++ compiler, once per content. engine.hpp runs whole layers of a plan.
//
// A failed status names kernel, CTA, thread, source line and fault: deadlock, lanes that part at a collective, a read of bytes
// that cp.async has not delivered, an access past shared memory or off its alignment. In a program built with AddressSanitizer or
// ThreadSanitizer kernels are built with it too; those report in their own way.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/lockstep/abi.h"
#include "w4moe/error.hpp"

namespace w4moe::lockstep {

/// What NVRTC would get.
struct KernelSource {
  std::string name;                                            ///< for reports: "fc1.n16"
  std::string text;                                            ///< the main text, which includes the headers below
  std::vector<std::pair<std::string, std::string>> headers;    ///< (name as included, text); go before the templates' own
  std::string entry;                                           ///< extern "C" name of the kernel
};

struct Options {
  bool random = false;           ///< threads and CTAs in a seeded random order, else ascending
  std::uint64_t seed = 0;
  int resident_ctas = 0;         ///< overrides what the launches name
  std::string compiler;          ///< empty: g++, c++ or clang++, the first on PATH (clang++ first in a program built by clang)
  /// A source tree to take templates and host backend from, so that reports and debuggers name its files. Empty: the texts that
  /// the library carries.
  std::string source_dir;
  std::string cache_dir;         ///< where shared objects are kept, as it is; empty: "lockstep" below cache_root
  std::string cache_root;        ///< a kernel cache, made and trusted as such; empty: the user's
  bool may_compile = true;       ///< false: a kernel that is not there is an error
  std::vector<std::string> compile_flags;  ///< added to the command line
};

struct Launch {
  std::int64_t grid_x = 1;
  std::int64_t grid_y = 1;
  int threads = 32;
  std::int64_t shared_bytes = 0;
  bool overlaps = false;         ///< programmatic dependent launch: may begin before the launch before it has ended
  int resident_ctas = 1;         ///< CTAs of the grid whose threads are interleaved
};

struct LaunchStats {
  std::uint64_t switches = 0;
  std::uint64_t barriers = 0;
  std::uint64_t warp_ops = 0;
};

/// A kernel that can run: the shared object stays loaded as long as a copy of this lives.
class Kernel {
 public:
  using Entry = void (*)(const void* args);

  /// A kernel that is part of the program: its source was compiled with W4MOE_OPS_HEADER and W4MOE_LOCKSTEP_IN_PROGRAM defined.
  static Kernel from_function(std::string name, Entry entry);

  /// Value of an exported W4MOE_FACT.
  Result<std::uint64_t> fact(const std::string& name) const;
  const std::string& name() const { return name_; }
  /// How it came to be, where it was loaded from its source.
  const std::string& key() const { return key_; }
  double compile_ms() const { return compile_ms_; }   ///< 0: it was there

 private:
  friend class LockstepDevice;
  std::string name_;
  Entry entry_ = nullptr;
  std::shared_ptr<void> library_;
  std::string key_;
  double compile_ms_ = 0;
};

/// One launch of a stream.
struct QueuedLaunch {
  Kernel kernel;
  Launch grid;
  const void* args = nullptr;    ///< read when it is queued
  std::size_t args_bytes = 0;
};

class LockstepDevice {
 public:
  explicit LockstepDevice(Options options = {});
  ~LockstepDevice();
  LockstepDevice(LockstepDevice&&) noexcept;
  LockstepDevice& operator=(LockstepDevice&&) noexcept;

  /// Compiles the source for the host, or finds it compiled. Errors: no compiler, or the compiler's whole log.
  Result<Kernel> load(const KernelSource& source);

  /// Loads a shared object that was built beforehand.
  Result<Kernel> load_library(const std::string& path, const std::string& entry, const std::string& name = {});

  /// Runs the launches of a stream to their end, each with a copy of its argument struct. One call runs at a time in a process;
  /// others wait.
  Status launch(std::span<const QueuedLaunch> launches);
  Status launch(const Kernel& kernel, const Launch& grid, const void* args, std::size_t args_bytes);

  template <class Args>
  Status launch(const Kernel& kernel, const Launch& grid, const Args& args) {
    return launch(kernel, grid, &args, sizeof(Args));
  }

  Options& options() { return options_; }
  const LaunchStats& last_launch() const { return stats_; }

 private:
  struct State;
  Options options_;
  LaunchStats stats_;
  std::unique_ptr<State> state_;
};

/// The flags that a kernel's shared object is built with in this program, its sanitizers included.
std::vector<std::string> host_compile_flags(const Options& options);

}  // namespace w4moe::lockstep
