// Scanning one projection, for the packer that goes expert by expert.
#pragma once

#include <algorithm>

#include "w4moe/weights.hpp"

namespace w4moe {

inline void merge_scan(ScanResult& into, const ScanResult& part) {
  into.min_byte = std::min(into.min_byte, part.min_byte);
  into.max_byte = std::max(into.max_byte, part.max_byte);
  into.first_nan = std::min(into.first_nan, part.first_nan);
}

ScanResult scan_projection(const Problem& problem, const SourceView& view, int threads);

}  // namespace w4moe
