// The families of checkpoints: which names and shapes hold a layer, and how they become SourceWeights.
#pragma once

#include "runtime/files/layer_file.hpp"
#include "runtime/files/tensor_table.hpp"

namespace w4moe {

/// Fills family, problem and source from the tensors of one layer.
Status read_family(TensorTable& table, LayerFile& layer);

/// The fused tensors of gpt-oss; the table has gate_up_proj_blocks.
Status read_gpt_oss(TensorTable& table, LayerFile& layer);

/// One tensor per expert and projection, in any of the per-expert formats.
Status read_per_expert(TensorTable& table, LayerFile& layer);

}  // namespace w4moe
