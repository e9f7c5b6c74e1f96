// Whole layers on the lock-step device: what Engine does with a GPU, here with host memory. The same plans, checks and launches.
//
//   LockstepEngine engine;
//   engine.build(plan);                                             // or leave it to the first run
//   LockstepEngine::init_scratch(plan, scratch, scratch_bytes);
//   engine.run(plan, weights, scratch, scratch_bytes, args);        // all pointers are host pointers
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "runtime/lockstep/device.hpp"
#include "w4moe/build.hpp"
#include "w4moe/prepared_weights.hpp"
#include "w4moe/run_args.hpp"

namespace w4moe::lockstep {

/// SMs whose CTAs run side by side.
inline constexpr int kLockstepSms = 4;

/// Safe from any thread; runs wait for each other.
class LockstepEngine {
 public:
  explicit LockstepEngine(Options options = {}) : device_(std::move(options)) {}

  /// Compiles the plan's kernels for the host, `jobs` at a time (0: as many as there are processors); those that other plans share
  /// are there already. Errors: toolchain_missing without a C++ compiler, not_prepared where kernels are missing and `jit` is off.
  Result<BuildReport> build(const Plan& plan, JitMode jit = JitMode::on, int jobs = 0, const BuildOptions& options = {});

  /// Whether build() has made every kernel of the plan.
  bool has_built(const Plan& plan);

  /// Writes the control region; once for each scratch.
  static Status init_scratch(const Plan& plan, void* scratch, i64 scratch_bytes);

  /// Prepared weights in host memory, aligned to kRegionAlignBytes. Errors as Engine::adopt.
  static Result<PreparedWeights> adopt(const void* data, i64 bytes);

  /// Runs the layer to its end, `times` times in one stream. Launches overlap as the plan's do on a GPU, with as many CTAs at a time
  /// as the device of the plan holds, at most those of four SMs. Payload and gaps of the scratch are filled first, and the gaps
  /// looked at afterwards: a kernel that reads what it has not written meets NaNs, one that writes outside its region is an error.
  Status run(const Plan& plan, const PreparedWeights& weights, void* scratch, i64 scratch_bytes, const RunArgs& args,
             int times = 1);

  /// What payload bytes hold before each run; NaNs of every type, and -1 in every count, unless set.
  void fill_scratch_with(u8 byte) { fill_ = byte; }

  /// Headers in place of the templates' own: faults planted by tests.
  void replace_headers(std::vector<std::pair<std::string, std::string>> headers) { headers_ = std::move(headers); }

  LockstepDevice& device() { return device_; }

 private:
  Result<Kernel> kernel_of(const PlannedKernel& planned, bool* was_loaded = nullptr);

  LockstepDevice device_;
  u8 fill_ = 0xff;
  std::vector<std::pair<std::string, std::string>> headers_;
  std::mutex mutex_;
  std::map<std::string, Kernel> kernels_;  // by the text of their variant
};

}  // namespace w4moe::lockstep
