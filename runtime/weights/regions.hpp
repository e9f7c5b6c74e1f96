// The parts of prepared weights that are not units. They are small and made on the host, also when a GPU packs the units.
#pragma once

#include <array>

#include "contract/layout_id.h"
#include "contract/scratch_layout.h"
#include "w4moe/weights.hpp"

namespace w4moe {

/// The first header_bytes() of prepared weights: the header and zeros.
std::vector<std::byte> header_region(const WeightLayout& layout);

/// Everything from globals_offset_bytes() to the end: global factors, biases, zeros between them. Biases are read through host
/// pointers. `scans` holds all experts.
std::vector<std::byte> tail_region(const Problem& problem, const SourceWeights& source, std::span<const ScanResult> scans);

/// Bytes behind the FC1 and behind the FC2 units, which hold zeros.
std::array<RegionSpan, 2> unit_gaps(const WeightLayout& layout);

/// The factors that kernels apply to the accumulators of one expert.
ExpertGlobals expert_globals(const Problem& problem, const SourceWeights& source, std::span<const ScanResult> scans, i64 expert);

/// Value of element `index` of a bias tensor.
float bias_value(const SourceOperand& operand, i64 experts, i64 expert, i64 index);

}  // namespace w4moe
