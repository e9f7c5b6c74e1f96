// The files of a checkpoint: which there are, and that they and the index agree.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/files/safetensors.hpp"

namespace w4moe {

/// Tensor -> file name, from the text of a model.safetensors.index.json. File names are plain: they cannot leave the folder.
Result<std::map<std::string, std::string>> parse_index(std::string_view text, const std::string& name);

struct CheckpointFiles {
  std::string folder;                   ///< empty where one file was named
  std::vector<SafetensorsFile> shards;  ///< by name
  std::string config;                   ///< text of config.json; empty: there is none
  std::string hf_quant_config;
};

/// Finds and maps them all; see Checkpoint::open. A tensor that the index puts elsewhere, a missing shard and a routed expert's tensor
/// that the index does not name are errors.
Result<CheckpointFiles> open_checkpoint_files(const std::string& path);

}  // namespace w4moe
