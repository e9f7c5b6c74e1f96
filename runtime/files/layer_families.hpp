// The families of checkpoints: which names and shapes hold a layer, and how they become SourceWeights.
#pragma once

#include "runtime/files/layer_file.hpp"
#include "runtime/files/tensor_table.hpp"

namespace w4moe {

/// Fills prefix, family, problem and source from the tensors of one layer, all of which must be known.
Status read_family(TensorTable& table, LayerFile& layer, const ReadHints& hints = {});

/// Activation and its parameters, where a file's metadata names them.
Status read_layer_metadata(const std::map<std::string, std::string>& metadata, Problem& problem);

/// The fused tensors of gpt-oss; the table has gate_up_proj_blocks.
Status read_gpt_oss(TensorTable& table, LayerFile& layer);

/// One tensor per expert and projection, in any of the per-expert formats.
Status read_per_expert(TensorTable& table, LayerFile& layer, const ReadHints& hints);

}  // namespace w4moe
