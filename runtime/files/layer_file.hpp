// One MoE layer out of safetensors files, under the names that checkpoints use. docs/weights.md lists the names.
#pragma once

#include "runtime/files/safetensors.hpp"
#include "runtime/reference/moe_inputs.hpp"
#include "w4moe/weights.hpp"

namespace w4moe {

/// What the tensors of a layer cannot tell, from the model's config.json where there is one.
struct ReadHints {
  bool gptq_v2 = false;         ///< zero points are stored as they are; GPTQ's first format stores them less one
  bool gptq_symmetric = false;  ///< every zero point stands for 8: checked, then left out
};

struct LayerFile {
  std::string family;   ///< "gpt-oss", "mxfp4 per expert", "modelopt", "compressed-tensors", "gptq", "awq"
  std::string prefix;   ///< of the tensors' names, up to and with "experts."
  Problem problem;      ///< H, I, E, format, biases from the tensors; activation from the file's metadata or the family's own;
                        ///< topk and max_tokens are 1, and the caller's to set
  SourceWeights source; ///< points into `files`
  std::vector<SafetensorsFile> files;
};

/// Reads a layer from one file or from shards. `prefix` names the layer where there are several ("model.layers.3.mlp").
/// Errors name the tensor, and what was expected. E8M0 NaN bytes are found when packing, not here.
Result<LayerFile> open_layer(const std::vector<std::string>& paths, const std::string& prefix = {});
Result<LayerFile> read_layer(std::vector<SafetensorsFile> files, const std::string& prefix = {});

/// The run-time tensors of one call, copied out of a file.
struct LayerInputs {
  DType dtype = DType::bf16;
  i64 hidden = 0;
  i64 topk = 0;
  MoeInputs inputs;             ///< points into the vectors below
  std::vector<u16> x;
  std::vector<i32> ids32;
  std::vector<i64> ids64;
  std::vector<float> weights;
  std::vector<u16> weights_bf16;
};

/// Reads `x` bf16/f16 [m, H], and `topk_ids` i32/i64 [m, k] with `topk_weights` f32/bf16 [m, k], or `router_logits` [m, E]
/// (f32, bf16, f16), from which the `topk_of_logits` largest are taken with softmax weights over those.
Result<LayerInputs> open_inputs(const std::string& path, i64 topk_of_logits = 0);
Result<LayerInputs> read_inputs(const SafetensorsFile& file, i64 topk_of_logits = 0);

/// Writes `out` [tokens, hidden] of the given dtype.
Status write_output(const std::string& path, DType dtype, i64 tokens, i64 hidden, std::span<const u16> out);

}  // namespace w4moe
