// Models by name: the MoE shape of a public model configuration, divided over ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "w4moe/problem.hpp"

namespace w4moe {

/// One preset, whole (TP 1, EP 1).
struct PresetInfo {
  std::string name;              ///< "gpt-oss-120b"
  std::string config;            ///< the public model configuration that it follows, or what it stands for
  std::string checkpoint_format; ///< weights that the public checkpoint ships: "mxfp4", "fp8", "bf16", ...
  Problem problem;               ///< max_tokens 0; format is the checkpoint's where it is one of ours, else the usual 4-bit one
};

/// Every preset, in alphabetical order.
std::vector<PresetInfo> presets();

/// The problem that one rank of `tp` tensor-parallel and `ep` expert-parallel ranks holds: I / tp features of E / ep experts.
/// Errors: unknown name (lists the known), tp or ep that do not divide. Whether groups divide I / tp is validate()'s to say, as the
/// format may still be replaced.
Result<Problem> preset(std::string_view name, int tp, int ep, i64 max_tokens);

}  // namespace w4moe
