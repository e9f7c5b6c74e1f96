// What every cubin tells its loader, so that host and device never compute a size twice.
#pragma once

#include "contract/args.h"
#include "device/ops.h"

/// Facts of the kernel of kVariant whose arguments are `Args`.
#define W4MOE_KERNEL_FACTS(Args)                                                                      \
  W4MOE_FACT(w4moe_fact_layout_id, w4moe::kernel_layout_id(w4moe::kVariant.weights()));              \
  W4MOE_FACT(w4moe_fact_shared_bytes, static_cast<w4moe::u64>(w4moe::kVariant.shared_bytes()));      \
  W4MOE_FACT(w4moe_fact_threads, static_cast<w4moe::u64>(w4moe::kVariant.threads()));                \
  W4MOE_FACT(w4moe_fact_args_bytes, sizeof(Args));                                                    \
  W4MOE_FACT(w4moe_fact_args_version, w4moe::kArgsVersion);
