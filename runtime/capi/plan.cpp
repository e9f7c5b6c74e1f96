#include "generator/plan/explain.hpp"
#include "runtime/capi/convert.hpp"
#include "runtime/capi/structs.hpp"

using namespace w4moe;
using namespace w4moe::capi;

namespace {

/// The device that is planned for: named, or the engine's.
Result<DeviceSpec> device_of(const EngineState* state, const w4moe_plan_options& options) {
  if (options.sms < 0) return invalid_argument("sms = {} is negative", options.sms);
  if (options.arch != nullptr) {
    const Result<Arch> arch = parse_arch(options.arch);
    if (!arch) return arch.error();
    if (state != nullptr && state->device == W4MOE_DEVICE_LOCKSTEP && options.sms == 0) return lockstep_device(*arch);
    return named_device(*arch, options.sms);
  }
  if (options.sms != 0) return invalid_argument("sms = {} without arch", options.sms);
  if (state == nullptr) return invalid_argument("neither an engine nor options.arch says for which device to plan");
  return state->device == W4MOE_DEVICE_CUDA ? state->engine.device(state->ordinal) : state->engine.device();
}

const char* text_of(const w4moe_plan* plan, std::once_flag w4moe_plan::*flag, std::string w4moe_plan::*text, std::string (*make)(const Plan&)) {
  if (plan == nullptr) return nullptr;
  try {
    auto* const writable = const_cast<w4moe_plan*>(plan);  // only these two texts, once, under their flags
    std::call_once(writable->*flag, [&] { writable->*text = make(plan->plan); });
    return (plan->*text).c_str();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

extern "C" {

w4moe_status w4moe_plan_create(const w4moe_engine* engine, const w4moe_problem* problem, const w4moe_plan_options* options, w4moe_plan** plan) {
  if (plan != nullptr) *plan = nullptr;
  EngineState* const state = engine == nullptr ? nullptr : engine->state.get();
  return call(state, [&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    const Result<w4moe_problem> from = read_struct("problem", problem);
    if (!from) return from.error();
    const Result<w4moe_plan_options> wishes = read_optional("options", options);
    if (!wishes) return wishes.error();
    const Result<Problem> converted = to_problem(*from);
    if (!converted) return converted.error();
    const Result<PlanOptions> plan_options = to_plan_options(*wishes);
    if (!plan_options) return plan_options.error();
    if (Status s = validate(*converted); !s) return s;  // before any driver call (N03)
    const Result<DeviceSpec> device = device_of(state, *wishes);
    if (!device) return device.error();
    Result<Plan> made = make_plan(*converted, *device, *plan_options);
    if (!made) return made.error();
    auto handle = std::make_unique<w4moe_plan>();
    handle->plan = std::move(*made);
    *plan = handle.release();
    return {};
  });
}

void w4moe_plan_destroy(w4moe_plan* plan) { delete plan; }

w4moe_status w4moe_plan_get_info(const w4moe_plan* plan, w4moe_plan_info* info) {
  return call(nullptr, [&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    if (Status s = check_size("info", info); !s) return s;
    const Plan& p = plan->plan;
    w4moe_plan_info value{};
    value.scratch_bytes = p.required_bytes();
    value.scratch_align_bytes = kScratchAlignBytes;
    value.prepared_weight_bytes = p.prepared_weight_bytes();
    value.prepared_align_bytes = kRegionAlignBytes;
    value.layout_id = p.layout();
    value.max_tokens = p.problem.shape.max_tokens;
    value.chunk_tokens = p.chunk_tokens;
    value.debug_guard_bytes = debug_guard_bytes();
    value.kernels = static_cast<int32_t>(p.kernels.size());
    value.sms = p.device.sms;
    copy_text(std::string(to_string(p.device.arch)), value.arch, sizeof(value.arch));
    write_struct(info, value);
    return {};
  });
}

const char* w4moe_plan_explain(const w4moe_plan* plan) {
  return text_of(plan, &w4moe_plan::explained, &w4moe_plan::explanation, [](const Plan& p) { return explain(p); });
}

const char* w4moe_plan_json(const w4moe_plan* plan) {
  return text_of(plan, &w4moe_plan::told, &w4moe_plan::json, [](const Plan& p) { return plan_json(p); });
}

size_t w4moe_plan_launches(const w4moe_plan* plan, int64_t tokens, char* buffer, size_t buffer_bytes) {
  if (plan == nullptr || tokens < 0 || tokens > plan->plan.problem.shape.max_tokens) return 0;
  try {
    const Plan& p = plan->plan;
    std::string text;
    if (tokens > 0) {
      for (const int index : p.launched_by(p.bucket_for(std::min<i64>(tokens, p.chunk_tokens)))) {
        text += (text.empty() ? "" : " + ") + p.kernels[static_cast<std::size_t>(index)].name;
      }
    }
    return copy_text(tokens == 0 ? "none" : text, buffer, buffer_bytes);
  } catch (...) {
    return 0;
  }
}

}  // extern "C"
