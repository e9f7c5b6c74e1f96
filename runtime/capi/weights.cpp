#include "runtime/capi/context.hpp"
#include "runtime/capi/convert.hpp"
#include "runtime/capi/structs.hpp"

using namespace w4moe;
using namespace w4moe::capi;

extern "C" {

w4moe_status w4moe_prepare_workspace_bytes(const w4moe_engine* engine, const w4moe_plan* plan, const w4moe_source_weights* source, int64_t* bytes) {
  EngineState* const state = engine == nullptr ? nullptr : engine->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("engine");
    if (plan == nullptr) return null_argument("plan");
    if (bytes == nullptr) return null_argument("bytes");
    const Result<SourceWeights> from = to_source(plan->plan.problem, source);
    if (!from) return from.error();
    const Result<i64> needed = prepare_workspace_bytes(plan->plan.problem, *from);
    if (!needed) return needed.error();
    *bytes = state->device == W4MOE_DEVICE_LOCKSTEP ? 0 : *needed;
    return {};
  });
}

w4moe_status w4moe_engine_prepare(w4moe_engine* engine, const w4moe_plan* plan, const w4moe_source_weights* source, void* dest, int64_t dest_bytes,
                                  void* workspace, int64_t workspace_bytes, void* stream, const w4moe_pack_options* options) {
  EngineState* const state = engine == nullptr ? nullptr : engine->state.get();
  return call(state, [&]() -> Status {
    if (state == nullptr) return null_argument("engine");
    if (plan == nullptr) return null_argument("plan");
    if (dest == nullptr) return null_argument("dest");
    const Result<SourceWeights> from = to_source(plan->plan.problem, source);
    if (!from) return from.error();
    const Result<PackOptions> pack = to_pack_options(options);
    if (!pack) return pack.error();
    if (Status s = check_context(*state); !s) return s;
    const Result<PreparedWeights> prepared = state->engine.prepare(plan->plan, *from, dest, dest_bytes, workspace, workspace_bytes, stream, *pack);
    if (!prepared) return prepared.error();
    return {};
  });
}

w4moe_status w4moe_pack_on_cpu(const w4moe_plan* plan, const w4moe_source_weights* source, void* dest, int64_t dest_bytes,
                               const w4moe_pack_options* options) {
  return call(nullptr, [&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    if (dest == nullptr) return null_argument("dest");
    const Result<SourceWeights> from = to_source(plan->plan.problem, source);
    if (!from) return from.error();
    const Result<PackOptions> pack = to_pack_options(options);
    if (!pack) return pack.error();
    const i64 bytes = plan->plan.prepared_weight_bytes();
    if (dest_bytes < bytes) return invalid_argument("dest has {} bytes, the packed layer takes {}", dest_bytes, bytes);
    return pack_on_cpu(plan->plan.problem, *from, {static_cast<std::byte*>(dest), static_cast<std::size_t>(bytes)}, *pack);
  });
}

w4moe_status w4moe_check_prepared(const w4moe_plan* plan, const void* prepared, int64_t bytes) {
  return call(nullptr, [&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    if (prepared == nullptr) return null_argument("prepared");
    if (bytes < 0) return invalid_argument("bytes = {} is negative", bytes);
    return check_prepared(plan->plan.problem, {static_cast<const std::byte*>(prepared), static_cast<std::size_t>(bytes)});
  });
}

w4moe_status w4moe_scan_on_cpu(const w4moe_plan* plan, const w4moe_source_weights* source, int32_t threads, w4moe_scan_report* report) {
  return call(nullptr, [&]() -> Status {
    if (plan == nullptr) return null_argument("plan");
    if (threads < 0) return invalid_argument("threads = {} (accepted: 0 and more)", threads);
    if (Status s = check_size("report", report); !s) return s;
    const Result<SourceWeights> from = to_source(plan->plan.problem, source);
    if (!from) return from.error();
    const Result<ScanReport> scan = scan_on_cpu(plan->plan.problem, *from, threads);
    if (!scan) return scan.error();
    w4moe_scan_report value{};
    value.nan_scales_projections = scan->nan_scales_projections;
    copy_text(to_string(scan->recommended), value.recommended_format, sizeof(value.recommended_format));
    write_struct(report, value);
    return {};
  });
}

}  // extern "C"
