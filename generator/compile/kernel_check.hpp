// Does a cubin hold the kernel that a variant asks for? Compiler, cache and loader ask this before they trust one: a mismatch is
// a refusal, never a wrong answer.
#pragma once

#include <vector>

#include "contract/variant.h"
#include "generator/compile/cubin_info.hpp"

namespace w4moe {

/// C17, C28: accepts a cubin that runs on `arch`; corrupt if it was built for another one. A plain "sm_90" is accepted where
/// "sm_90a" is wanted, since such code runs there; the reverse is not.
Status check_arch(const CubinInfo& info, Arch arch);

/// What the kernel of a variant must export (W4MOE_KERNEL_FACTS): w4moe_fact_args_bytes, _args_version, _layout_id, _shared_bytes and
/// _threads, in this order; the values are the contract's.
std::vector<CubinFact> expected_facts(const Variant& variant);

/// Arch, exactly one kernel of the right name, a launch bound and registers that allow the variant's threads, and every expected
/// fact. corrupt, naming the first difference.
Status check_kernel(const CubinInfo& info, const Variant& variant);

}  // namespace w4moe
