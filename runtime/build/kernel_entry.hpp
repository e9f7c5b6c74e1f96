// The metadata of a kernel's cache entry: JSON for people and tools, and the numbers that the cubin alone does not tell.
#pragma once

#include <string>

#include "cache/entry.hpp"
#include "generator/compile/compiler.hpp"
#include "runtime/build/kernel_wish.hpp"
#include "w4moe/build.hpp"

namespace w4moe {

/// The entry of a compiled kernel.
cache::Entry kernel_entry(const CompileRequest& request, const std::string& key_text, const KernelWish& wish,
                          const CompiledKernel& compiled);

/// The row of a kernel, from its cubin's own facts; spills and the like from the metadata where the cubin does not tell.
KernelReport kernel_report(const CompileRequest& request, const KernelWish& wish, const CubinInfo& info,
                           const cache::Entry& entry);

}  // namespace w4moe
