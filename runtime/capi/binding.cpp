#include "runtime/capi/context.hpp"
#include "runtime/capi/convert.hpp"
#include "runtime/capi/structs.hpp"

using namespace w4moe;
using namespace w4moe::capi;

extern "C" {

w4moe_status w4moe_bind(const w4moe_engine* engine, const w4moe_plan* plan, const void* weights, int64_t weights_bytes, void* scratch,
                        int64_t scratch_bytes, w4moe_binding** binding) {
  if (binding != nullptr) *binding = nullptr;
  EngineState* const state = engine == nullptr ? nullptr : engine->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("engine");
    if (plan == nullptr) return null_argument("plan");
    if (binding == nullptr) return null_argument("binding");
    if (Status s = check_context(*state); !s) return s;
    const Result<PreparedWeights> prepared = state->engine.adopt(weights, weights_bytes);
    if (!prepared) return prepared.error();
    Result<Binding> bound = state->engine.bind(plan->plan, *prepared, scratch, scratch_bytes);
    if (!bound) return bound.error();
    *binding = new w4moe_binding{engine->state, std::move(*bound)};
    return {};
  });
}

void w4moe_binding_destroy(w4moe_binding* binding) { delete binding; }

w4moe_status w4moe_init_scratch(const w4moe_binding* binding, void* stream) {
  EngineState* const state = binding == nullptr ? nullptr : binding->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("binding");
    return state->engine.init_scratch(binding->binding, stream);
  });
}

w4moe_status w4moe_run(const w4moe_binding* binding, void* stream, const w4moe_run_args* args) {
  EngineState* const state = binding == nullptr ? nullptr : binding->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("binding");
    const Result<RunArgs> converted = to_run_args(args);
    if (!converted) return converted.error();
    return state->engine.run(binding->binding, stream, *converted);
  });
}

w4moe_status w4moe_binding_get_status(const w4moe_binding* binding, w4moe_binding_report* report) {
  EngineState* const state = binding == nullptr ? nullptr : binding->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("binding");
    if (Status s = check_size("report", report); !s) return s;
    const Result<BindingStatus> status = state->engine.status(binding->binding);
    if (!status) return status.error();
    w4moe_binding_report value{};
    value.code = static_cast<uint32_t>(status->code);
    value.detail = status->detail;
    copy_text(status->text, value.text, sizeof(value.text));
    write_struct(report, value);
    return {};
  });
}

}  // extern "C"
