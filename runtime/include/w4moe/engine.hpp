// The life of a layer in a process with a GPU, or on a CPU that plays one (EngineOptions::device):
//
//   Engine::create -> device() -> make_plan -> required_bytes -> build -> adopt -> bind -> init_scratch -> run, run, run ...
//
// Threads: every method may be called from any thread. A Plan is immutable. A Binding (its scratch) belongs to one stream at a
// time; two bindings with scratch of their own run side by side. Device, context and stream are the caller's: the library makes
// no context, keeps the current one, and works on the stream it is given and on no other.
#pragma once

#include <memory>

#include "w4moe/build.hpp"
#include "w4moe/prepared_weights.hpp"
#include "w4moe/run_args.hpp"
#include "w4moe/weights.hpp"

namespace w4moe {

namespace driver {
struct DriverTable;
}
class Compiler;

/// What runs the kernels.
enum class EngineDevice {
  cuda,      ///< a GPU, through the driver
  lockstep,  ///< the CPU plays one: the same kernel sources, compiled by this machine's C++ compiler. Device memory is host memory,
             ///< streams are null, a run returns when the layer is done, and one layer runs at a time. Slow; for tests and small layers
};

struct EngineOptions {
  KernelOptions kernels;
  EngineDevice device = EngineDevice::cuda;
  /// Every run fills the payload of its scratch with a pattern first, and checks the guard zones (the gaps between the regions,
  /// and up to debug_guard_bytes() of scratch beyond required_bytes) afterwards. A scratch that a second run enters while one is
  /// under way is an error. Costs a fill of the scratch and a wait for the stream at every run; in a capture the fills are
  /// captured and nothing is checked.
  bool debug = false;
  /// Other driver functions than those of libcuda, for tests. Must outlive the engine and its bindings.
  const driver::DriverTable* driver = nullptr;
  /// Another compiler than NVRTC, for tests.
  std::shared_ptr<Compiler> compiler;
};

/// A plan with its weights and its scratch, ready to run. Movable; the memory stays the caller's and must outlive it, as it must
/// itself outlive every run in flight and every graph that captured one.
class Binding {
 public:
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

  const Plan& plan() const;
  const PreparedWeights& weights() const;
  void* scratch() const;
  i64 scratch_bytes() const;

 private:
  friend class Engine;
  struct Impl;
  explicit Binding(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What the control region tells of the runs so far.
struct BindingStatus {
  KernelStatus code = KernelStatus::ok;   ///< sticky: init_scratch clears it
  u32 detail = 0;
  std::string text;                       ///< for people; "ok" where all is well

  bool ok() const { return code == KernelStatus::ok; }
};

struct LoadOptions {
  BuildProgressFn progress;
  std::function<bool()> cancelled;    ///< asked before each compile; true ends the build with an error
  /// The stream that the caller works on: if it is capturing, the call is refused before anything happens.
  StreamHandle stream = nullptr;
};

class Engine {
 public:
  /// Reads the environment and opens nothing: no driver, no cache, no compiler, until a method needs it. invalid_argument for a
  /// setting that cannot be read.
  static Result<Engine> create(EngineOptions options = {});
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  /// The device of the calling thread's current context, for make_plan.
  Result<DeviceSpec> device() const;
  /// The device of an ordinal; makes no context.
  Result<DeviceSpec> device(int ordinal) const;

  /// Finds or compiles every kernel of the plan and loads them into the current context, ready to launch: nothing is left for the
  /// first run. Each build() is balanced by one unload(), as dlopen by dlclose. not_prepared, before any other driver call, while
  /// a stream is capturing (options.stream, the legacy and the per-thread default stream are asked).
  Result<BuildReport> build(const Plan& plan, const LoadOptions& options = {});
  /// build() that never compiles: a kernel that the cache does not hold is an error that names it and the manifest entry to add.
  Result<BuildReport> preload(const Plan& plan, const LoadOptions& options = {});
  /// From now on build() is preload(): nothing is compiled any more, for the rest of the engine's life. For a service that has
  /// warmed up, and in which a compile would be a fault to be seen rather than a stall.
  void freeze();
  bool frozen() const;
  /// Gives up one build() of this plan in the current context. A kernel leaves the GPU when no build and no Binding uses it.
  Status unload(const Plan& plan);
  /// Gives up every build() in every context.
  void unload_all();

  /// Packs a layer's checkpoint tensors on the GPU: the bytes are those of pack_on_cpu. dest: device memory of at least
  /// plan.prepared_weight_bytes(); workspace: of at least prepare_workspace_bytes(), free again afterwards; both aligned to
  /// kRegionAlignBytes. Tensors in host memory are copied one expert at a time. Finds or compiles the two packing kernels of the
  /// format, works on the stream and waits for it; allocates nothing on the device. options.threads is ignored. Not in a capture. On the
  /// lock-step device the CPU packs, and needs no workspace.
  Result<PreparedWeights> prepare(const Plan& plan, const SourceWeights& source, void* dest, i64 dest_bytes, void* workspace,
                                  i64 workspace_bytes, StreamHandle stream, const PackOptions& options = {});

  /// Prepared weights that lie in device memory already. Reads the 64-byte header (synchronous) and checks it.
  Result<PreparedWeights> adopt(const void* device_data, i64 bytes) const;

  /// Checks everything that does not change from run to run; allocates nothing on the device and launches nothing.
  /// scratch: device memory of at least required_bytes(), aligned to kScratchAlignBytes; several bindings (the layers of a model)
  /// may share one, on one stream. not_prepared unless build() loaded the plan's kernels in the current context.
  Result<Binding> bind(const Plan& plan, const PreparedWeights& weights, void* scratch, i64 scratch_bytes) const;

  /// Writes the control region, in stream order; once for each scratch, before its first run. May be captured.
  Status init_scratch(const Binding& binding, StreamHandle stream) const;

  /// Enqueues the layer for args.tokens tokens. Checks the arguments first and launches nothing if one is wrong. Allocates
  /// nothing, takes no lock, compiles and loads nothing, waits for nothing; may be captured in any mode. The stream must be of
  /// the binding's context; which context is current does not matter.
  Status run(const Binding& binding, StreamHandle stream, const RunArgs& args) const;

  /// What kernels recorded in the control region. Reads device memory synchronously, without waiting for any stream: wait for the
  /// runs of interest first. Not in a capture.
  Result<BindingStatus> status(const Binding& binding) const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Device bytes that Engine::prepare works in besides the destination: 48 bytes an expert, and the tensors of the largest expert
/// where they lie in host memory. Checks the source.
Result<i64> prepare_workspace_bytes(const Problem& problem, const SourceWeights& source);

/// Scratch beyond required_bytes that the debug mode watches, if it is there.
i64 debug_guard_bytes();

/// The device that Engine::device() names for EngineDevice::lockstep: four SMs, so that the CTAs of a small layer already outnumber
/// those that run at a time. Plans for other devices run there too.
DeviceSpec lockstep_device(Arch arch = Arch::sm_90a);

/// Whether a problem is served on a device, or why not. Host arithmetic only.
Status supports(const Problem& problem, const DeviceSpec& device);

/// Scratch bytes of a problem on a device: Plan::required_bytes() of its plan. Host arithmetic only.
Result<i64> required_bytes(const Problem& problem, const DeviceSpec& device);

}  // namespace w4moe
