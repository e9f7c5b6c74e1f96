// What config.json and hf_quant_config.json say of a model's experts: checked against the tensors, and asked for what tensors cannot
// tell (activation, top-k, GPTQ's convention of zero points).
#pragma once

#include <optional>
#include <string>

#include "runtime/files/layer_file.hpp"

namespace w4moe {

/// One way in which weights may be quantised, as a config states it. Absent: not stated.
struct QuantGroup {
  std::optional<i64> bits;
  std::optional<i64> group_size;    ///< kWholeRow for one scale a row
  std::optional<bool> symmetric;
  std::optional<bool> is_float;
};

struct CheckpointConfig {
  std::string source;               ///< the file, for messages; empty: there is none
  std::string quant_source;         ///< where the quantisation is stated
  std::string model_type;
  std::optional<i64> hidden, intermediate, experts, topk;
  std::string activation;           ///< as spelled in the file; empty: not stated
  std::optional<double> limit;
  std::string expert_dtype;         ///< DeepSeek-V4: "fp4"
  std::string method;               ///< quant_method: "mxfp4", "compressed-tensors", ...; empty: not stated
  std::string quant_format;         ///< compressed-tensors: "pack-quantized"; AWQ: version; GPTQ: checkpoint_format
  bool act_order = false;           ///< GPTQ's desc_act
  std::vector<QuantGroup> groups;   ///< several where parts of the model differ
};

/// Reads the texts of the two files; empty ones are absent. Fields of no concern are not looked at; those that are must have their type.
Result<CheckpointConfig> parse_checkpoint_config(std::string_view config, std::string_view hf_quant_config, const std::string& folder);

/// What the reader of a family must know from the config.
ReadHints read_hints(const CheckpointConfig& config);

/// Puts activation, limit and top-k into the layer's problem, and checks family, format and sizes against the config.
Status apply_checkpoint_config(const CheckpointConfig& config, LayerFile& layer);

}  // namespace w4moe
