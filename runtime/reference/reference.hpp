// Two ways of computing a layer on the host, to hold kernels against. docs/numerics.md says what each one promises.
#pragma once

#include <span>
#include <vector>

#include "runtime/reference/moe_inputs.hpp"
#include "w4moe/weights.hpp"

namespace w4moe {

struct ReferenceOptions {
  std::vector<i64> tokens;  ///< rows to compute, in this order; empty: all of them
  int threads = 1;          ///< 0: as many as the machine has
  /// Mirror only: whether weighted route rows are rounded to bf16 before the sum. Launches that a plan serves directly
  /// (Bucket::direct) keep them in fp32; fp16 layers always do.
  bool rounds_route_rows = true;
};

/// Everything in fp64, straight from the checkpoint's tensors by a decoder of its own; no rounding before the caller's.
/// `out`: [rows computed][H]. Ids outside 0..E-1 contribute nothing, duplicates count each time.
Status reference_fp64(const Problem& problem, const SourceWeights& source, const MoeInputs& inputs, std::span<double> out,
                      const ReferenceOptions& options = {});

/// Rounds where the kernels round, and nowhere else: exact products, fp32 sums in ascending k (per 32 k where the scale is applied
/// to the sum), h as stored, weighted route rows as stored, fp32 sum over top-k in route order, one rounding to the output type.
/// `out`: bits of [rows computed][H] in the problem's dtype.
Status reference_mirror(const Problem& problem, const SourceWeights& source, const MoeInputs& inputs, std::span<u16> out,
                        const ReferenceOptions& options = {});

}  // namespace w4moe
