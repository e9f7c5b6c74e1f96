// Every condition that bind() and run() ask for, as pure functions: the CUDA engine and the host model share them.
#pragma once

#include "w4moe/plan.hpp"
#include "w4moe/prepared_weights.hpp"
#include "w4moe/run_args.hpp"

namespace w4moe {

/// The weights are of this plan's layout: magic, version, layout id (the message has both ids and the fields that differ), size.
Status check_weights(const Plan& plan, const PreparedWeights& weights);

/// A header that adopt() read: magic, version, size against the memory that holds it, alignment.
Status check_header(const WeightHeader& header, const void* data, i64 bytes);

/// Scratch is large enough (the message has both numbers) and aligned to kScratchAlignBytes.
Status check_scratch(const Plan& plan, const void* scratch, i64 bytes);

/// Every launch that the plan can make fits a grid (2^31 - 1 CTAs) and the device's shared memory.
Status check_grids(const Plan& plan);

/// The arguments of one run: tokens within the plan, pointers set and aligned, strides, dtypes. tokens == 0 needs no pointer.
/// Allocates nothing where all is well.
Status check_run(const Plan& plan, const RunArgs& args);

/// What a run writes must not be what it reads at the same time: `out` apart from ids, scratch and weights, and no input inside
/// the scratch. `out` may be x. args have passed check_run.
Status check_overlap(const Plan& plan, const RunArgs& args, const PreparedWeights& weights, const void* scratch);

}  // namespace w4moe
