#include "runtime/lockstep/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "generator/render/variant_header.hpp"
#include "runtime/build/parallel.hpp"
#include "runtime/dispatch/checks.hpp"
#include "runtime/dispatch/chunks.hpp"
#include "runtime/dispatch/debug_guard.hpp"
#include "runtime/dispatch/launch_sequence.hpp"
#include "runtime/lockstep/fiber.hpp"
#include "runtime/lockstep/separate_blocks.hpp"

#if defined(W4MOE_LOCKSTEP_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace w4moe::lockstep {
namespace {

/// The gaps between the regions of a scratch while a layer runs. AddressSanitizer stops at an access, also at a read; without it
/// a write is found afterwards.
class Gaps {
 public:
  Gaps(const Plan& plan, u8* scratch) : scratch_(scratch), zones_(guard_zones(plan, plan.required_bytes())) {
    for (const GuardZone& zone : zones_) {
      std::memset(scratch_ + zone.offset_bytes, kGuardByte, static_cast<std::size_t>(zone.bytes));
#if defined(W4MOE_LOCKSTEP_ASAN)
      __asan_poison_memory_region(scratch_ + zone.offset_bytes, static_cast<std::size_t>(zone.bytes));
#endif
    }
  }
  ~Gaps() { open(); }
  Gaps(const Gaps&) = delete;
  Gaps& operator=(const Gaps&) = delete;

  Status check() {
    open();
    for (const GuardZone& zone : zones_) {
      for (i64 i = 0; i < zone.bytes; ++i) {
        if (scratch_[zone.offset_bytes + i] == kGuardByte) continue;
        return Error{ErrorCode::corrupt, fmt::format("lock-step device: a kernel wrote outside its region: byte {} of the scratch, {} bytes past the end of region {}",
                                                     zone.offset_bytes + i, i, zone.after)};
      }
    }
    return {};
  }

 private:
  void open() {
#if defined(W4MOE_LOCKSTEP_ASAN)
    for (const GuardZone& zone : zones_) __asan_unpoison_memory_region(scratch_ + zone.offset_bytes, static_cast<std::size_t>(zone.bytes));
#endif
  }

  u8* scratch_;
  std::vector<GuardZone> zones_;
};

void fill_payload(const Plan& plan, u8* scratch, u8 byte) {
  for (const PlannedRegion& region : plan.regions) {
    if (region.region == Region::control) continue;
    std::memset(scratch + region.offset_bytes, byte, static_cast<std::size_t>(region.bytes));
  }
}

}  // namespace

Result<Kernel> LockstepEngine::kernel_of(const PlannedKernel& planned, bool* was_loaded) {
  const w4moe::KernelSource rendered = render(planned.variant);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kernels_.find(rendered.variant_text); found != kernels_.end()) {
      if (was_loaded != nullptr) *was_loaded = true;
      return found->second;
    }
  }
  KernelSource source{planned.name, rendered.entry_text, headers_, rendered.entry_name};
  source.headers.emplace_back(std::string(kVariantHeaderName), rendered.variant_text);
  Result<Kernel> kernel = device_.load(source);
  if (!kernel) return kernel.error();
  const Result<std::uint64_t> layout = kernel->fact("w4moe_fact_layout_id");
  if (!layout) return layout.error();
  if (*layout != kernel_layout_id(planned.variant.weights())) {
    return Error{ErrorCode::corrupt, fmt::format("lock-step device: {} was built for layout {:#x}, the plan has {:#x}", planned.name, *layout,
                                                 kernel_layout_id(planned.variant.weights()))};
  }
  const std::lock_guard lock(mutex_);
  kernels_.emplace(rendered.variant_text, *kernel);
  return *kernel;
}

Result<BuildReport> LockstepEngine::build(const Plan& plan, JitMode jit, int jobs, const BuildOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  device_.options().may_compile = jit == JitMode::on;
  const int count = static_cast<int>(plan.kernels.size());
  BuildReport report;
  report.kernels.resize(plan.kernels.size());
  std::mutex mutex;
  std::optional<Error> failure;
  int done = 0;
  for_each_index(count, jobs > 0 ? jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())), [&](int i) {
    const PlannedKernel& planned = plan.kernels[static_cast<std::size_t>(i)];
    bool was_loaded = false;
    const bool cancelled = options.cancelled && options.cancelled();
    const Result<Kernel> kernel = cancelled ? Result<Kernel>(Error{ErrorCode::internal, "the build was cancelled"}) : kernel_of(planned, &was_loaded);
    const std::lock_guard lock(mutex);
    if (!kernel) {
      if (!failure) failure = kernel.error();
      return false;
    }
    KernelReport& row = report.kernels[static_cast<std::size_t>(i)];
    row.key = kernel->key();
    row.name = planned.name;
    row.arch = to_string(planned.variant.arch);
    row.builder = "host";
    row.description = render(planned.variant).description;
    row.smem_bytes = kernel_shared_bytes(planned.variant, plan.problem.shape);
    row.compile_ms = was_loaded ? 0 : kernel->compile_ms();
    row.hit = row.compile_ms == 0;
    (row.hit ? report.hits : report.compiled) += 1;
    if (options.progress) options.progress(row, ++done, count);
    return true;
  });
  if (failure) return *failure;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

bool LockstepEngine::has_built(const Plan& plan) {
  const std::lock_guard lock(mutex_);
  return std::all_of(plan.kernels.begin(), plan.kernels.end(),
                     [&](const PlannedKernel& planned) { return kernels_.count(render(planned.variant).variant_text) > 0; });
}

Status LockstepEngine::init_scratch(const Plan& plan, void* scratch, i64 scratch_bytes) {
  if (Status s = check_scratch(plan, scratch, scratch_bytes); !s) return s;
  u8* control = static_cast<u8*>(scratch) + plan.scratch.span(Region::control).offset_bytes;
  std::memset(control, 0, kControlBytes);
  const ControlRegion region{kControlMagic, kControlVersion, 0, 0};
  std::memcpy(control, &region, sizeof region);
  return {};
}

Result<PreparedWeights> LockstepEngine::adopt(const void* data, i64 bytes) {
  PreparedWeights weights{data, bytes, {}};
  if (data == nullptr || bytes < static_cast<i64>(sizeof(WeightHeader))) {
    return Error{ErrorCode::invalid_argument, fmt::format("prepared weights of {} bytes have no header", bytes)};
  }
  std::memcpy(&weights.header, data, sizeof(WeightHeader));
  if (Status s = check_header(weights.header, data, bytes); !s) return s.error();
  return weights;
}

Status LockstepEngine::run(const Plan& plan, const PreparedWeights& weights, void* scratch, i64 scratch_bytes, const RunArgs& args,
                           int times) {
  if (Status s = check_weights(plan, weights); !s) return s;
  if (Status s = check_scratch(plan, scratch, scratch_bytes); !s) return s;
  if (Status s = check_grids(plan); !s) return s;
  if (Status s = check_run(plan, args); !s) return s;
  if (args.tokens == 0) return {};
  if (Status s = check_overlap(plan, args, weights, scratch); !s) return s;

  u8* const bytes = static_cast<u8*>(scratch);
  fill_payload(plan, bytes, fill_);
  Gaps gaps(plan, bytes);
  const SeparateBlocks blocks(plan, weights.data, scratch);
  std::deque<w4moe::Launch> launches;  // they hold the argument structs
  std::vector<QueuedLaunch> queue;
  const auto enqueue = [&](const Bucket& bucket, const RunArgs& chunk) -> Status {
    for (const w4moe::Launch& launch : make_launches(plan, bucket, weights.data, scratch, chunk)) {
      const PlannedKernel& planned = plan.kernels[static_cast<std::size_t>(launch.kernel)];
      const Result<Kernel> kernel = kernel_of(planned);
      if (!kernel) return kernel.error();
      w4moe::Launch& kept = launches.emplace_back(launch);
      blocks.redirect(kept);
      const int resident = std::min(plan.device.sms, kLockstepSms) * planned.variant.min_ctas_per_sm();
      const Launch grid{kept.grid_x, 1, static_cast<int>(kept.threads), kept.shared_bytes, kept.pdl, resident};
      queue.push_back({*kernel, grid, kept.args.data(), kept.args_bytes});
    }
    return {};
  };
  for (int i = 0; i < times; ++i) {
    if (Status s = for_each_chunk(plan, args, enqueue); !s) return s;
  }
  if (Status s = device_.launch(queue); !s) return s;
  blocks.write_back();
  return gaps.check();
}

}  // namespace w4moe::lockstep
