#include "runtime/reference/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/weights/float_bits.hpp"

namespace w4moe {
namespace {

constexpr i64 kLargestUlpDistance = 65536;
constexpr double kMirrorAllowance = 1.5;

double ratio(double squared_error, double squared_reference) {
  if (squared_error == 0) return 0;
  return squared_reference == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(squared_error / squared_reference);
}

bool is_nan_bits(DType dtype, u16 bits) {
  const u32 magnitude = bits & 0x7fffu;
  return dtype == DType::f16 ? magnitude > 0x7c00u : magnitude > 0x7f80u;
}

/// True where the fp64 value is neither NaN nor rounds to an infinity of the output type.
bool is_finite_in(DType dtype, double value) {
  if (!std::isfinite(value)) return false;
  // Halfway between the largest finite value and the next one that the type would have.
  const double limit = dtype == DType::f16 ? 65520.0 : std::ldexp(511.0, 119);
  return std::fabs(value) < limit;
}

}  // namespace

ErrorReport compare_outputs(DType dtype, std::span<const u16> out, std::span<const double> reference, i64 columns) {
  ErrorReport report;
  double all_errors = 0;
  double all_references = 0;
  const i64 rows = columns == 0 ? 0 : static_cast<i64>(reference.size()) / columns;
  for (i64 row = 0; row < rows; ++row) {
    RowError error;
    double errors = 0;
    double references = 0;
    for (i64 column = 0; column < columns; ++column) {
      const auto at = static_cast<std::size_t>(row * columns + column);
      const double expected = reference[at];
      const double actual = static_cast<double>(float_of(dtype, out[at]));
      if (!is_finite_in(dtype, expected)) {
        const bool same = std::isnan(expected) ? std::isnan(actual) : std::isinf(actual) && (actual > 0) == (expected > 0);
        error.kind_mismatches += same ? 0 : 1;
        continue;
      }
      if (!std::isfinite(actual)) {
        ++error.kind_mismatches;
        continue;
      }
      const double difference = actual - expected;
      errors += difference * difference;
      references += expected * expected;
      error.max_abs = std::max(error.max_abs, std::fabs(difference));
    }
    error.relative_rmse = ratio(errors, references);
    if (row == 0 || error.relative_rmse > report.worst_row_rmse) {
      report.worst_row_rmse = error.relative_rmse;
      report.worst_row = row;
    }
    report.max_abs = std::max(report.max_abs, error.max_abs);
    report.kind_mismatches += error.kind_mismatches;
    all_errors += errors;
    all_references += references;
    report.rows.push_back(error);
  }
  report.relative_rmse = ratio(all_errors, all_references);
  return report;
}

i64 ulp_distance(DType dtype, u16 a, u16 b) {
  const bool a_nan = is_nan_bits(dtype, a);
  const bool b_nan = is_nan_bits(dtype, b);
  if (a_nan || b_nan) return a_nan && b_nan ? 0 : kLargestUlpDistance;
  const auto place = [](u16 bits) {
    const i64 magnitude = bits & 0x7fff;
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  };
  return std::abs(place(a) - place(b));
}

i64 max_ulp_distance(DType dtype, std::span<const u16> a, std::span<const u16> b) {
  if (a.size() != b.size()) return kLargestUlpDistance;
  i64 largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, ulp_distance(dtype, a[i], b[i]));
  return largest;
}

double contract_relative_rmse(DType dtype) { return dtype == DType::f16 ? 6e-4 : 4e-3; }

ContractVerdict check_contract(const Problem& problem, const ErrorReport& out, const ErrorReport& mirror) {
  const double bound = contract_relative_rmse(problem.dtype);
  if (out.kind_mismatches != 0) {
    return {false, fmt::format("{} elements are NaN or infinite where the reference is not, or the other way round", out.kind_mismatches)};
  }
  if (!(out.relative_rmse <= bound)) {
    return {false, fmt::format("relative RMSE {:.3g} over the whole output, at most {:.3g} allowed", out.relative_rmse, bound)};
  }
  const bool large = problem.shape.hidden >= 512 && problem.shape.intermediate >= 256;
  if (!large && mirror.rows.size() != out.rows.size()) {
    return {false, fmt::format("the mirroring reference has {} rows, the output {}", mirror.rows.size(), out.rows.size())};
  }
  for (std::size_t row = 0; row < out.rows.size(); ++row) {
    const double allowed = large ? bound : kMirrorAllowance * mirror.rows[row].relative_rmse;
    if (!(out.rows[row].relative_rmse <= allowed)) {
      return {false, fmt::format("row {}: relative RMSE {:.3g}, at most {:.3g} allowed ({})", row, out.rows[row].relative_rmse, allowed,
                                 large ? "stated bound" : "1.5 times that of the mirroring reference")};
    }
  }
  return {true, fmt::format("relative RMSE {:.3g}, worst row {:.3g}", out.relative_rmse, out.worst_row_rmse)};
}

}  // namespace w4moe
