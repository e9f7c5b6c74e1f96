// From the tensors of a checkpoint to the flat view that packer and kernels read.
#include "runtime/weights/operand.hpp"

namespace w4moe {

SourceView source_view(const Problem& problem, const SourceWeights& source, Projection projection, i64 expert) {
  const i64 experts = problem.shape.experts;
  const ProjectionRows at = projection_rows(problem, source, projection);
  SourceView view;
  view.rows = at.rows;
  view.k = at.k;
  view.row_first = at.first;
  view.row_step = at.step;
  view.code_order = source.code_order;
  view.code_sign = problem.format.is_int4() ? source.code_sign : CodeSign::offset8;
  view.zero_order = problem.format.has_zero_point ? source.zero_order : ZeroOrder::none;
  view.zero_add = source.zero_add;
  view.scale_type = problem.format.scale;

  const ExpertTensor codes = expert_tensor(at.matrix->codes, 2, experts, expert);
  view.codes = codes.data;
  view.code_row_stride_bytes = codes.row_stride_bytes;
  view.code_word_stride_bytes = codes.type == SourceType::i32 ? codes.column_stride_bytes : 4;
  view.code_expert_stride_bytes = codes.expert_stride_bytes;

  const ExpertTensor scales = expert_tensor(at.matrix->scales, 2, experts, expert);
  view.scales = scales.data;
  view.scale_expert_stride_bytes = scales.expert_stride_bytes;
  if (source.scale_layout == ScaleLayout::swizzled_128x4) {
    const i64 groups = problem.format.groups(at.k);
    view.scale_order = ScaleOrder::swizzled_128x4;
    view.scale_tile_columns = swizzled_tile_columns(groups);
    if (is_stacked(at.matrix->scales, 2, experts)) {
      // Any shape of the right size will do, so the distance between experts comes from the size alone.
      view.scale_expert_stride_bytes = swizzled_scale_bytes(at.tensor_rows, groups);
      view.scales = static_cast<const u8*>(at.matrix->scales[0].data) + expert * view.scale_expert_stride_bytes;
    }
  } else {
    view.scale_order = ScaleOrder::strided;
    const bool transposed = source.scale_layout == ScaleLayout::transposed;
    view.scale_row_stride_bytes = transposed ? scales.column_stride_bytes : scales.row_stride_bytes;
    view.scale_group_stride_bytes = transposed ? scales.row_stride_bytes : scales.column_stride_bytes;
  }

  if (view.zero_order != ZeroOrder::none) {
    const ExpertTensor zeros = expert_tensor(at.matrix->zeros, 2, experts, expert);
    view.zeros = zeros.data;
    view.zero_row_stride_bytes = zeros.row_stride_bytes;
    view.zero_group_stride_bytes = zeros.column_stride_bytes;
    view.zero_expert_stride_bytes = zeros.expert_stride_bytes;
  }
  return view;
}

}  // namespace w4moe
