// The references' own reading of checkpoint tensors: by tables and by the formats' definitions, sharing nothing with the packer,
// so that a fault of the packed layout cannot cancel itself in a comparison.
#pragma once

#include "w4moe/weights.hpp"

namespace w4moe {

/// Reads rows of one layer. The source has passed validate_source and lies in host memory.
class SourceDecoder {
 public:
  SourceDecoder(const Problem& problem, const SourceWeights& source) : problem_(problem), source_(source) {}

  /// Row `row` of a projection: `values` receives k code values (e2m1 values, or code minus zero point), `scales` one block scale
  /// per group (NaN where the stored one is no finite number).
  void row(i64 expert, Projection projection, i64 row, float* values, double* scales) const;

  /// The expert's global scale as a factor.
  double global(i64 expert, Projection projection) const;

  /// Bias of a row; zero without biases, and for `down` where another rank adds it.
  double bias(i64 expert, Projection projection, i64 row) const;

  i64 rows(Projection projection) const;
  i64 columns(Projection projection) const;

 private:
  const SourceMatrix& matrix(Projection projection) const;
  i64 tensor_row(Projection projection, i64 row) const;
  double scale(const SourceMatrix& from, i64 expert, i64 tensor_row, i64 group, i64 groups) const;
  u32 zero_point(const SourceMatrix& from, i64 expert, i64 tensor_row, i64 group) const;

  const Problem& problem_;
  const SourceWeights& source_;
};

}  // namespace w4moe
