#include <utility>

#include "runtime/capi/context.hpp"
#include "runtime/capi/convert.hpp"
#include "runtime/capi/structs.hpp"

namespace w4moe::capi {

Result<std::shared_ptr<EngineState>> make_engine(EngineOptions options, int32_t device, int ordinal) {
  if (device < W4MOE_DEVICE_CURRENT || device > W4MOE_DEVICE_LOCKSTEP) {
    return invalid_argument("device = {} (accepted: W4MOE_DEVICE_CURRENT = {}, W4MOE_DEVICE_CUDA = {}, W4MOE_DEVICE_LOCKSTEP = {})", device,
                            static_cast<int>(W4MOE_DEVICE_CURRENT), static_cast<int>(W4MOE_DEVICE_CUDA), static_cast<int>(W4MOE_DEVICE_LOCKSTEP));
  }
  if (ordinal < 0 || (ordinal != 0 && device != W4MOE_DEVICE_CUDA)) {
    return invalid_argument("ordinal = {} (accepted: 0 and more with W4MOE_DEVICE_CUDA, else 0)", ordinal);
  }
  options.device = device == W4MOE_DEVICE_LOCKSTEP ? EngineDevice::lockstep : EngineDevice::cuda;
  const KernelOptions kernels = options.kernels;
  const driver::DriverTable* const table = options.driver;
  Result<Engine> engine = Engine::create(std::move(options));
  if (!engine) return engine.error();
  auto state = std::make_shared<EngineState>(std::move(*engine));
  state->kernels = kernels;
  state->device = device;
  state->ordinal = ordinal;
  state->driver = table;
  return state;
}

Status check_context(const EngineState& state) {
  if (state.device != W4MOE_DEVICE_CUDA) return {};
  const driver::DriverTable* table = state.driver;
  if (table == nullptr) {
    const Result<const driver::DriverTable*> system = driver::system_driver();
    if (!system) return system.error();
    table = *system;
  }
  if (Status s = driver::initialize(*table); !s) return s;
  const Result<driver::CurrentContext> context = driver::current_context(*table);
  if (!context) return context.error();
  if (context->device == state.ordinal) return {};
  return invalid_argument("the engine is for device {}, the current context is on device {}", state.ordinal, context->device);
}

namespace {

/// Options of a build as the C++ interface has them.
template <class To>
void set_callbacks(const w4moe_build_options& from, To& to) {
  if (from.progress != nullptr) {
    to.progress = [call = from.progress, user = from.user](const KernelReport& kernel, int done, int total) {
      call(user, kernel.name.c_str(), kernel.hit ? 1 : 0, done, total);
    };
  }
  if (from.cancelled != nullptr) to.cancelled = [call = from.cancelled, user = from.user] { return call(user) != 0; };
}

void write_report(const BuildReport& report, w4moe_build_report* to) {
  if (to == nullptr) return;
  w4moe_build_report value{};
  value.kernels = static_cast<int32_t>(report.kernels.size());
  value.compiled = report.compiled;
  value.hits = report.hits;
  value.jobs = report.jobs;
  value.seconds = report.seconds;
  write_struct(to, value);
}

w4moe_status build(w4moe_engine* engine, const w4moe_plan* plan, const w4moe_build_options* options, w4moe_build_report* report, bool may_compile) {
  EngineState* const state = engine == nullptr ? nullptr : engine->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("engine");
    if (plan == nullptr) return null_argument("plan");
    const Result<w4moe_build_options> from = read_optional("options", options);
    if (!from) return from.error();
    if (report != nullptr) {
      if (Status s = check_size("report", report); !s) return s;
    }
    if (Status s = check_context(*state); !s) return s;
    LoadOptions load;
    load.stream = from->stream;
    set_callbacks(*from, load);
    const Result<BuildReport> built = may_compile ? state->engine.build(plan->plan, load) : state->engine.preload(plan->plan, load);
    if (!built) return built.error();
    write_report(*built, report);
    return {};
  });
}

}  // namespace
}  // namespace w4moe::capi

using namespace w4moe;
using namespace w4moe::capi;

extern "C" {

w4moe_status w4moe_engine_create(const w4moe_engine_options* options, w4moe_engine** engine) {
  if (engine != nullptr) *engine = nullptr;
  return call(nullptr, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    const Result<w4moe_engine_options> from = read_optional("options", options);
    if (!from) return from.error();
    Result<EngineOptions> converted = to_engine_options(*from);
    if (!converted) return converted.error();
    Result<std::shared_ptr<EngineState>> state = make_engine(std::move(*converted), from->device, from->ordinal);
    if (!state) return state.error();
    *engine = new w4moe_engine{std::move(*state)};
    return {};
  });
}

void w4moe_engine_destroy(w4moe_engine* engine) { delete engine; }

size_t w4moe_engine_last_error(const w4moe_engine* engine, char* buffer, size_t buffer_bytes) {
  try {
    return copy_text(engine == nullptr ? std::string() : engine->state->last_error(), buffer, buffer_bytes);
  } catch (...) {
    return copy_text({}, buffer, buffer_bytes);
  }
}

w4moe_status w4moe_engine_freeze(w4moe_engine* engine) {
  return call(nullptr, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    engine->state->engine.freeze();
    return {};
  });
}

int32_t w4moe_engine_is_frozen(const w4moe_engine* engine) { return engine != nullptr && engine->state->engine.frozen() ? 1 : 0; }

w4moe_status w4moe_engine_build(w4moe_engine* engine, const w4moe_plan* plan, const w4moe_build_options* options, w4moe_build_report* report) {
  return build(engine, plan, options, report, true);
}

w4moe_status w4moe_engine_preload(w4moe_engine* engine, const w4moe_plan* plan, const w4moe_build_options* options, w4moe_build_report* report) {
  return build(engine, plan, options, report, false);
}

w4moe_status w4moe_engine_build_cache(w4moe_engine* engine, const w4moe_plan* const* plans, size_t count, const w4moe_build_options* options,
                                      w4moe_build_report* report) {
  EngineState* const state = engine == nullptr ? nullptr : engine->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("engine");
    if (plans == nullptr && count > 0) return null_argument("plans");
    const Result<w4moe_build_options> from = read_optional("options", options);
    if (!from) return from.error();
    if (report != nullptr) {
      if (Status s = check_size("report", report); !s) return s;
    }
    if (state->device == W4MOE_DEVICE_LOCKSTEP) return unsupported("the lock-step device has no cache to build ahead: w4moe_engine_build compiles its kernels");
    if (state->engine.frozen()) return Error{ErrorCode::not_prepared, "the engine is frozen, or the JIT is off: nothing is compiled"};
    std::vector<Plan> copies;
    for (size_t i = 0; i < count; ++i) {
      if (plans[i] == nullptr) return null_argument("one of plans");
      copies.push_back(plans[i]->plan);
    }
    BuildOptions build_options;
    set_callbacks(*from, build_options);
    const Result<BuildReport> built = build_kernels(copies, state->kernels, build_options);
    if (!built) return built.error();
    write_report(*built, report);
    return {};
  });
}

w4moe_status w4moe_engine_unload(w4moe_engine* engine, const w4moe_plan* plan) {
  EngineState* const state = engine == nullptr ? nullptr : engine->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("engine");
    if (plan == nullptr) return null_argument("plan");
    return state->engine.unload(plan->plan);
  });
}

}  // extern "C"
