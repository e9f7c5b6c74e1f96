#include "runtime/lockstep/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "generator/render/variant_header.hpp"
#include "runtime/dispatch/checks.hpp"
#include "runtime/dispatch/chunks.hpp"
#include "runtime/dispatch/debug_guard.hpp"
#include "runtime/dispatch/launch_sequence.hpp"
#include "runtime/lockstep/fiber.hpp"

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

DeviceSpec lockstep_device(Arch arch) {
  DeviceSpec device = named_device(arch, kLockstepSms);
  device.name = fmt::format("lockstep ({})", to_string(arch));
  return device;
}

Result<Kernel> LockstepEngine::kernel_of(const Variant& variant, const std::string& name) {
  const w4moe::KernelSource rendered = render(variant);
  if (const auto found = kernels_.find(rendered.variant_text); found != kernels_.end()) return found->second;
  KernelSource source{name, rendered.entry_text, headers_, rendered.entry_name};
  source.headers.emplace_back(std::string(kVariantHeaderName), rendered.variant_text);
  Result<Kernel> kernel = device_.load(source);
  if (!kernel) return kernel.error();
  const Result<std::uint64_t> layout = kernel->fact("w4moe_fact_layout_id");
  if (!layout) return layout.error();
  if (*layout != kernel_layout_id(variant.weights())) {
    return Error{ErrorCode::corrupt, fmt::format("lock-step device: {} was built for layout {:#x}, the plan has {:#x}", name, *layout,
                                                 kernel_layout_id(variant.weights()))};
  }
  kernels_.emplace(rendered.variant_text, *kernel);
  return *kernel;
}

Status LockstepEngine::build(const Plan& plan) {
  for (const PlannedKernel& planned : plan.kernels) {
    if (const Result<Kernel> kernel = kernel_of(planned.variant, planned.name); !kernel) return kernel.error();
  }
  return {};
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
  std::deque<w4moe::Launch> launches;  // they hold the argument structs
  std::vector<QueuedLaunch> queue;
  const auto enqueue = [&](const Bucket& bucket, const RunArgs& chunk) -> Status {
    for (const w4moe::Launch& launch : make_launches(plan, bucket, weights.data, scratch, chunk)) {
      const PlannedKernel& planned = plan.kernels[static_cast<std::size_t>(launch.kernel)];
      const Result<Kernel> kernel = kernel_of(planned.variant, planned.name);
      if (!kernel) return kernel.error();
      const w4moe::Launch& kept = launches.emplace_back(launch);
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
  return gaps.check();
}

}  // namespace w4moe::lockstep
