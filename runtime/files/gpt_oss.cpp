// MXFP4 as gpt-oss ships it: all experts in one tensor, gate and up rows interleaved, blocks of 16 bytes beside their scales.
#include "runtime/files/layer_families.hpp"

namespace w4moe {
namespace {

constexpr i64 kBlockBytes = 16;

/// One of the two projections: `rows` by `blocks` blocks.
Status read_projection(TensorTable& table, const std::string& name, i64 experts, i64 rows, i64 blocks, bool has_bias, SourceMatrix& matrix) {
  const Result<const FileTensor*> codes = table.require(name + "_blocks", {experts, rows, blocks, kBlockBytes}, {"U8"});
  if (!codes) return codes.error();
  const Result<const FileTensor*> scales = table.require(name + "_scales", {experts, rows, blocks}, {"U8", "F8_E8M0"});
  if (!scales) return scales.error();
  matrix.codes = {SourceTensor{(*codes)->data, SourceType::u8, {experts, rows, blocks * kBlockBytes}, {}}};
  matrix.scales = {SourceTensor{(*scales)->data, SourceType::u8, {experts, rows, blocks}, {}}};
  if (!has_bias) return {};
  const Result<const FileTensor*> bias = table.require(name + "_bias", {experts, rows}, {"BF16", "F16", "F32"});
  if (!bias) return bias.error();
  const Result<SourceType> type = source_type_of(**bias);
  if (!type) return type.error();
  matrix.bias = {SourceTensor{(*bias)->data, *type, {experts, rows}, {}}};
  return {};
}

}  // namespace

Status read_gpt_oss(TensorTable& table, LayerFile& layer) {
  const Result<const FileTensor*> fused = table.require("gate_up_proj_blocks");
  if (!fused) return fused.error();
  const std::vector<i64>& fused_shape = (*fused)->shape;
  if (fused_shape.size() != 4 || fused_shape[1] % 2 != 0) {
    return table.fault("gate_up_proj_blocks", "its shape is not [E, 2 I, H / 32, 16]");
  }
  const Result<const FileTensor*> down = table.require("down_proj_blocks");
  if (!down) return down.error();
  if ((*down)->shape.size() != 4) return table.fault("down_proj_blocks", "its shape is not [E, H, I / 32, 16]");

  if (fused_shape[0] > kMaxExperts || fused_shape[1] > 2 * kMaxIntermediate || (*down)->shape[1] > kMaxHidden) {
    return table.fault("gate_up_proj_blocks", "E, 2 I or the H of down_proj_blocks is larger than any layer that is served");
  }

  Problem& problem = layer.problem;
  layer.family = "gpt-oss";
  problem.format = kMxfp4;
  problem.activation = Activation::swiglu_oai;
  problem.params = default_params(problem.activation);
  problem.shape.experts = fused_shape[0];
  problem.shape.intermediate = fused_shape[1] / 2;
  problem.shape.hidden = (*down)->shape[1];
  problem.has_bias = table.has("gate_up_proj_bias") || table.has("down_proj_bias");

  SourceWeights& source = layer.source;
  source.gate_up_order = GateUpOrder::interleaved;
  source.code_order = CodeOrder::low_nibble_first;
  source.scale_layout = ScaleLayout::row_major;
  source.zero_order = ZeroOrder::none;
  source.global_convention = GlobalConvention::none;
  const i64 experts = problem.shape.experts;
  const i64 hidden_blocks = problem.format.groups(problem.shape.hidden);
  const i64 feature_blocks = problem.format.groups(problem.shape.intermediate);
  if (Status s = read_projection(table, "gate_up_proj", experts, 2 * problem.shape.intermediate, hidden_blocks, problem.has_bias, source.gate_up);
      !s) {
    return s;
  }
  return read_projection(table, "down_proj", experts, problem.shape.hidden, feature_blocks, problem.has_bias, source.down);
}

}  // namespace w4moe
