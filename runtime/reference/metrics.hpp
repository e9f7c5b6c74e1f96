// How far an output is from a reference, and whether the numerics contract holds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "w4moe/problem.hpp"

namespace w4moe {

/// Errors of one output row. Elements whose reference is not finite in the output type must agree in kind, and enter no sum.
struct RowError {
  double relative_rmse = 0;   ///< sqrt(sum (out - ref)^2 / sum ref^2); 0 for 0 / 0, infinite for a nonzero row against zeros
  double max_abs = 0;
  i64 kind_mismatches = 0;    ///< NaN or infinity where the reference has none, or the other way round
};

struct ErrorReport {
  std::vector<RowError> rows;
  double relative_rmse = 0;   ///< over the whole output
  double worst_row_rmse = 0;
  i64 worst_row = 0;
  double max_abs = 0;
  i64 kind_mismatches = 0;
};

/// Compares bits of `dtype` with fp64 values, both [rows][columns].
ErrorReport compare_outputs(DType dtype, std::span<const u16> out, std::span<const double> reference, i64 columns);

/// Steps between two values of a 16-bit type along the line of its finite values and infinities; 0 for two NaNs and for +0 and -0.
/// NaN against anything else is the largest distance, 65536.
i64 ulp_distance(DType dtype, u16 a, u16 b);

/// Largest ulp_distance over two outputs of the same size.
i64 max_ulp_distance(DType dtype, std::span<const u16> a, std::span<const u16> b);

/// Largest relative RMSE of a row that the contract allows for layers with H >= 512 and I >= 256, and of any whole output.
double contract_relative_rmse(DType dtype);

struct ContractVerdict {
  bool holds = false;
  std::string reason;  ///< the figures, and the bound that was broken
};

/// The numerics contract of docs/numerics.md. `mirror` are the errors of reference_mirror against the same fp64 values; small layers
/// need it, and it has as many rows as `out`.
ContractVerdict check_contract(const Problem& problem, const ErrorReport& out, const ErrorReport& mirror);

}  // namespace w4moe
