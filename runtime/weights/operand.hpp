// Finding one expert's tensor in an operand, whichever way the checkpoint keeps its experts.
#pragma once

#include "w4moe/weights.hpp"

namespace w4moe {

/// One expert's tensor of rank 1 (columns only) or 2.
struct ExpertTensor {
  const u8* data = nullptr;
  SourceType type = SourceType::u8;
  i64 row_stride_bytes = 0;
  i64 column_stride_bytes = 0;
  i64 expert_stride_bytes = 0;  ///< zero where each expert has its own tensor
};

/// True where one tensor holds all experts along its first dimension.
bool is_stacked(const SourceOperand& operand, std::size_t rank, i64 experts);

/// The operand has been validated for this rank.
ExpertTensor expert_tensor(const SourceOperand& operand, std::size_t rank, i64 experts, i64 expert);

/// "gate", "up", "down".
std::string_view to_string(Projection projection);

/// The matrix of the source that holds a projection, and where its rows lie in it.
struct ProjectionRows {
  const SourceMatrix* matrix = nullptr;
  i64 tensor_rows = 0;  ///< rows of that matrix
  i64 rows = 0;         ///< rows of the projection
  i64 k = 0;
  i64 first = 0;        ///< tensor row of row 0
  i64 step = 1;
};
ProjectionRows projection_rows(const Problem& problem, const SourceWeights& source, Projection projection);

/// The projections that a problem has, in packing order.
std::span<const Projection> projections_of(const Problem& problem);

/// Checkpoint global of a projection as a factor; 1 where there is none.
float global_factor(const SourceWeights& source, Projection projection, i64 expert);

}  // namespace w4moe
