#include "runtime/lockstep/device.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "runtime/lockstep/host_compiler.hpp"
#include "runtime/lockstep/scheduler.hpp"

/// For kernels that are part of the program; a shared object has its own variable of this name.
extern "C" __attribute__((visibility("default"))) w4moe::lockstep::Host* w4moe_lockstep_host;
w4moe::lockstep::Host* w4moe_lockstep_host = nullptr;

namespace w4moe::lockstep {
namespace {

std::mutex g_launch_mutex;

}  // namespace

struct LockstepDevice::State {
  Scheduler scheduler;
};

LockstepDevice::LockstepDevice(Options options) : options_(std::move(options)), state_(std::make_unique<State>()) {}
LockstepDevice::~LockstepDevice() = default;
LockstepDevice::LockstepDevice(LockstepDevice&&) noexcept = default;
LockstepDevice& LockstepDevice::operator=(LockstepDevice&&) noexcept = default;

Kernel Kernel::from_function(std::string name, Entry entry) {
  w4moe_lockstep_host = &Scheduler::host();
  Kernel kernel;
  kernel.name_ = std::move(name);
  kernel.entry_ = entry;
  return kernel;
}

Result<std::uint64_t> Kernel::fact(const std::string& name) const {
  void* address = library_ != nullptr ? dlsym(library_.get(), name.c_str()) : nullptr;
  if (address == nullptr) return Error{ErrorCode::corrupt, fmt::format("{} exports no fact {}", name_, name)};
  std::uint64_t value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

Result<Kernel> LockstepDevice::load(const KernelSource& source) {
  const Result<SharedObject> object = build_shared_object(source, options_);
  if (!object) return object.error();
  Result<Kernel> kernel = load_library(object->path, source.entry, source.name);
  if (!kernel) return kernel.error();
  kernel->key_ = object->key;
  kernel->compile_ms_ = object->compile_ms;
  return kernel;
}

Result<Kernel> LockstepDevice::load_library(const std::string& path, const std::string& entry, const std::string& name) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Error{ErrorCode::io, fmt::format("cannot load {}: {}", path, dlerror())};
  Kernel kernel;
  kernel.name_ = name.empty() ? entry : name;
  kernel.library_ = std::shared_ptr<void>(handle, [](void* h) { dlclose(h); });
  void* symbol = dlsym(handle, entry.c_str());
  if (symbol == nullptr) return Error{ErrorCode::corrupt, fmt::format("{} exports no kernel {}", path, entry)};
  std::memcpy(&kernel.entry_, &symbol, sizeof symbol);
  void* slot = dlsym(handle, "w4moe_lockstep_host");
  if (slot == nullptr) return Error{ErrorCode::corrupt, fmt::format("{} was not built for the lock-step device", path)};
  *static_cast<Host**>(slot) = &Scheduler::host();
  return kernel;
}

Status LockstepDevice::launch(std::span<const QueuedLaunch> launches) {
  const std::lock_guard lock(g_launch_mutex);
  std::vector<std::unique_ptr<unsigned char[]>> copies;
  std::vector<GridSpec> grids;
  for (const QueuedLaunch& launch : launches) {
    // A heap block of the very size, so that AddressSanitizer sees a kernel that takes another struct for its arguments.
    copies.emplace_back(new unsigned char[launch.args_bytes > 0 ? launch.args_bytes : 1]);
    if (launch.args_bytes > 0) std::memcpy(copies.back().get(), launch.args, launch.args_bytes);
    GridSpec& spec = grids.emplace_back();
    spec.kernel = launch.kernel.name_;
    spec.entry = launch.kernel.entry_;
    spec.args = copies.back().get();
    spec.grid_x = launch.grid.grid_x;
    spec.grid_y = launch.grid.grid_y;
    spec.threads = launch.grid.threads;
    spec.shared_bytes = launch.grid.shared_bytes;
    spec.overlaps = launch.grid.overlaps;
    spec.resident_ctas = options_.resident_ctas != 0 ? options_.resident_ctas : launch.grid.resident_ctas;
  }
  const std::string report = state_->scheduler.run(grids, {options_.random, options_.seed});
  const GridStats& stats = state_->scheduler.stats();
  stats_ = {stats.switches, stats.barriers, stats.warp_ops};
  if (report.empty()) return {};
  const std::string order = options_.random ? fmt::format(" (random schedule, seed {})", options_.seed) : std::string();
  return Error{ErrorCode::internal, "lock-step device: " + report + order};
}

Status LockstepDevice::launch(const Kernel& kernel, const Launch& grid, const void* args, std::size_t args_bytes) {
  const QueuedLaunch one{kernel, grid, args, args_bytes};
  return launch({&one, 1});
}

}  // namespace w4moe::lockstep
