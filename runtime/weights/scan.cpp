// Exponent windows and NaN scales of a layer, on the CPU.
#include <mutex>

#include "generator/problem/errors.hpp"
#include "runtime/weights/operand.hpp"
#include "runtime/weights/parallel.hpp"
#include "runtime/weights/scan.hpp"

namespace w4moe {

ScanResult scan_projection(const Problem& problem, const SourceView& view, int threads) {
  ScanResult total;
  std::mutex mutex;
  parallel_for(threads, view.rows, [&](i64 begin, i64 end) {
    ScanResult part;
    const i64 groups = problem.format.groups(view.k);
    for (i64 row = begin; row < end; ++row) {
      for (i64 group = 0; group < groups; ++group) scan_block(problem.format, view, row, group, part);
    }
    const std::lock_guard lock(mutex);
    merge_scan(total, part);
  });
  return total;
}

Result<ScanReport> scan_on_cpu(const Problem& problem, const SourceWeights& source, int threads) {
  if (Status s = validate_source(problem, source); !s) return s.error();
  if (source.on_device) return invalid_argument("the tensors are in device memory; the CPU scans host tensors only");
  ScanReport report;
  report.recommended = problem.format;
  report.results.resize(static_cast<std::size_t>(problem.shape.experts * kProjections));
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    for (const Projection projection : projections_of(problem)) {
      ScanResult& result = report.results[static_cast<std::size_t>(expert * kProjections + static_cast<i64>(projection))];
      result = scan_projection(problem, source_view(problem, source, projection, expert), threads);
      if (problem.format.is_mxfp4() && !mx_window(result).fits) report.recommended.wide_exponent = true;
      if (result.first_nan != ScanResult{}.first_nan) ++report.nan_scales_projections;
    }
  }
  return report;
}

Status check_scan(const Problem& problem, std::span<const ScanResult> results, bool allow_nan_scales, i64 first_expert) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ScanResult& result = results[i];
    const Projection projection = static_cast<Projection>(i % kProjections);
    const i64 expert = first_expert + static_cast<i64>(i / kProjections);
    if (result.first_nan != ScanResult{}.first_nan && !allow_nan_scales) {
      const i64 k = projection == Projection::down ? problem.shape.intermediate : problem.shape.hidden;
      const i64 groups = problem.format.groups(k);
      return invalid_argument(
          "expert {}, {}: the scale of row {}, group {} is not a finite number (allow_nan_scales passes it on to the outputs that "
          "use it)",
          expert, to_string(projection), result.first_nan / groups, result.first_nan % groups);
    }
    if (problem.format.is_mxfp4() && !problem.format.wide_exponent && !mx_window(result).fits) {
      return unsupported(
          "expert {}, {}: scale bytes of blocks with nonzero codes span {}..{}, format mxfp4 holds {} adjacent exponents; use format "
          "mxfp4:wide",
          expert, to_string(projection), result.min_byte, result.max_byte, kMxWindow);
    }
  }
  return {};
}

}  // namespace w4moe
