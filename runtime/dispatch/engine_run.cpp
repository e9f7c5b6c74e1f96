// Bindings and runs.
#include <fmt/format.h>

#include <cstring>

#include "runtime/dispatch/binding_impl.hpp"
#include "runtime/dispatch/checks.hpp"
#include "runtime/dispatch/chunks.hpp"
#include "runtime/dispatch/engine_impl.hpp"
#include "runtime/dispatch/submit.hpp"
#include "runtime/driver/scoped.hpp"
#include "runtime/guarded.hpp"

namespace w4moe {
namespace {

BindingStatus status_of(const ControlRegion& control) {
  BindingStatus status;
  status.code = static_cast<KernelStatus>(control.status);
  status.detail = control.status_detail;
  if (control.magic != kControlMagic || control.version != kControlVersion) status.code = KernelStatus::control_corrupt;
  switch (status.code) {
    case KernelStatus::ok: status.text = "ok"; break;
    case KernelStatus::control_corrupt:
      status.text = "the control region does not hold what init_scratch writes: it was not called, or the scratch was overwritten";
      break;
    default: status.text = fmt::format("status {} (detail {})", control.status, control.status_detail); break;
  }
  return status;
}

}  // namespace

Status Binding::Impl::enqueue(StreamHandle stream, const RunArgs& args) const {
  return for_each_chunk(*plan, args, [&](const Bucket& bucket, const RunArgs& chunk) {
    return submit(*table, *plan, kernels, make_launches(*plan, bucket, weights.data, scratch, chunk), stream);
  });
}

Binding::Binding(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Binding::Binding(Binding&&) noexcept = default;
Binding& Binding::operator=(Binding&&) noexcept = default;
Binding::~Binding() = default;
const Plan& Binding::plan() const { return *impl_->plan; }
const PreparedWeights& Binding::weights() const { return impl_->weights; }
void* Binding::scratch() const { return impl_->scratch; }
i64 Binding::scratch_bytes() const { return impl_->scratch_bytes; }

Result<Binding> Engine::bind(const Plan& plan, const PreparedWeights& weights, void* scratch, i64 scratch_bytes) const {
  return guarded([&]() -> Result<Binding> {
    if (Status s = check_weights(plan, weights); !s) return s.error();
    if (Status s = check_scratch(plan, scratch, scratch_bytes); !s) return s.error();
    if (Status s = check_grids(plan); !s) return s.error();
    auto impl = std::make_unique<Binding::Impl>();
    impl->plan = std::make_shared<const Plan>(plan);
    impl->weights = weights;
    impl->scratch = scratch;
    impl->scratch_bytes = scratch_bytes;
    if (impl_->lockstep) {
      if (!impl_->lockstep->has_built(plan)) return Error{ErrorCode::not_prepared, "the plan's kernels are not built: call build(plan) or preload(plan) first"};
      return Binding(std::move(impl));
    }
    Result<DriverContext> dc = impl_->driver_context();
    if (!dc) return dc.error();
    if (Status s = check_memory_device(*dc, "the prepared weights", weights.data); !s) return s.error();
    if (Status s = check_memory_device(*dc, "scratch", scratch); !s) return s.error();

    auto kernels = impl_->kernels.find(plan, dc->context.id);
    if (!kernels) {
      return Error{ErrorCode::not_prepared, "the plan's kernels are not loaded in the current context: call build(plan) or preload(plan) first, outside "
                                            "any capture"};
    }
    impl->table = dc->table;
    impl->context = dc->context;
    impl->kernels = std::move(*kernels);
    if (impl_->options.debug) impl->guards = guard_zones(plan, scratch_bytes);
    return Binding(std::move(impl));
  });
}

Status Engine::init_scratch(const Binding& binding, StreamHandle stream) const {
  return guarded([&]() -> Status {
    const Binding::Impl& b = *binding.impl_;
    if (impl_->lockstep) {
      if (Status s = check_no_stream(stream); !s) return s;
      return lockstep::LockstepEngine::init_scratch(*b.plan, b.scratch, b.scratch_bytes);
    }
    if (Status s = check_stream(*b.table, b.context, stream); !s) return s;
    const driver::ScopedContext current(*b.table, b.context.handle);
    if (Status s = driver::check(*b.table, current.code(), "cuCtxPushCurrent"); !s) return s;

    // Fills only: they need no host memory that would have to outlive a capture.
    const driver::DevicePtr control = device_ptr(b.scratch) + static_cast<u64>(b.plan->scratch.span(Region::control).offset_bytes);
    if (Status s = driver::check(*b.table, b.table->memset_d8_async(control, 0, kControlBytes, stream), "cuMemsetD8Async"); !s) return s;
    const std::pair<std::size_t, u32> words[] = {{offsetof(ControlRegion, magic), static_cast<u32>(kControlMagic)},
                                                 {offsetof(ControlRegion, magic) + 4, static_cast<u32>(kControlMagic >> 32)},
                                                 {offsetof(ControlRegion, version), kControlVersion}};
    for (const auto& [offset, word] : words) {
      if (Status s = driver::check(*b.table, b.table->memset_d32_async(control + offset, word, 1, stream), "cuMemsetD32Async"); !s) return s;
    }
    return {};
  });
}

Status Engine::run(const Binding& binding, StreamHandle stream, const RunArgs& args) const {
  return guarded([&]() -> Status {
    const Binding::Impl& b = *binding.impl_;
    if (impl_->lockstep) {
      if (Status s = check_no_stream(stream); !s) return s;
      return impl_->lockstep->run(*b.plan, b.weights, b.scratch, b.scratch_bytes, args);
    }
    if (Status s = check_run(*b.plan, args); !s) return s;
    if (args.tokens == 0) return {};
    if (Status s = check_overlap(*b.plan, args, b.weights, b.scratch); !s) return s;
    if (Status s = check_stream(*b.table, b.context, stream); !s) return s;
    const driver::ScopedContext current(*b.table, b.context.handle);
    if (Status s = driver::check(*b.table, current.code(), "cuCtxPushCurrent"); !s) return s;
    return impl_->options.debug ? impl_->run_debug(b, stream, args) : b.enqueue(stream, args);
  });
}

Status Engine::Impl::run_debug(const Binding::Impl& b, StreamHandle stream, const RunArgs& args) {
  const driver::DriverTable& t = *b.table;
  driver::CaptureStatus capture = driver::CaptureStatus::none;
  if (Status s = driver::check(t, t.stream_is_capturing(stream, &capture), "cuStreamIsCapturing"); !s) return s;
  if (Status s = scratch_use.enter(b.scratch, b.scratch_bytes, stream); !s) return s;
  const Status result = [&]() -> Status {
    if (Status s = poison_scratch(t, *b.plan, b.guards, b.scratch, stream); !s) return s;
    if (Status s = b.enqueue(stream, args); !s) return s;
    if (capture != driver::CaptureStatus::none) return {};
    if (Status s = driver::check(t, t.stream_synchronize(stream), "cuStreamSynchronize"); !s) return s;
    return check_guards(t, b.guards, b.scratch);
  }();
  scratch_use.leave(b.scratch);
  return result;
}

Result<BindingStatus> Engine::status(const Binding& binding) const {
  return guarded([&]() -> Result<BindingStatus> {
    const Binding::Impl& b = *binding.impl_;
    const i64 offset = b.plan->scratch.span(Region::control).offset_bytes;
    ControlRegion control;
    if (impl_->lockstep) {
      std::memcpy(&control, static_cast<const u8*>(b.scratch) + offset, sizeof(control));
      return status_of(control);
    }
    const driver::ScopedContext current(*b.table, b.context.handle);
    if (Status s = driver::check(*b.table, current.code(), "cuCtxPushCurrent"); !s) return s.error();
    const driver::Code code = b.table->memcpy_dtoh(&control, device_ptr(b.scratch) + static_cast<u64>(offset), sizeof(control));
    if (code != driver::kSuccess) return driver::driver_error(*b.table, code, "cuMemcpyDtoH", "reading the control region");
    return status_of(control);
  });
}

}  // namespace w4moe
