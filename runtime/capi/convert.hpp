// C structures as the C++ interface has them.
#pragma once

#include "runtime/capi/handles.hpp"

namespace w4moe::capi {

/// Options of an engine, without the device.
Result<EngineOptions> to_engine_options(const w4moe_engine_options& from);

Result<Problem> to_problem(const w4moe_problem& from);
Result<PlanOptions> to_plan_options(const w4moe_plan_options& from);

/// Pointers, orders and types; what they must be for a problem is validate_source's.
Result<SourceWeights> to_source(const Problem& problem, const w4moe_source_weights* from);
Result<PackOptions> to_pack_options(const w4moe_pack_options* from);

Result<RunArgs> to_run_args(const w4moe_run_args* from);

}  // namespace w4moe::capi
