// Faults planted into the kernels' own text.
#pragma once

#include <fstream>
#include <sstream>

#include "tests/lockstep/layer.hpp"

namespace w4moe::lockstep {

/// A template with its one occurrence of `from` replaced.
inline Headers planted(const std::string& file, const std::string& from, const std::string& to) {
  std::ifstream in(W4MOE_SOURCE_DIR "/templates/" + file);
  std::ostringstream text;
  text << in.rdbuf();
  std::string changed = text.str();
  const std::size_t at = changed.find(from);
  INFO(file << " no longer holds, or holds twice: " << from);
  REQUIRE(at != std::string::npos);
  REQUIRE(changed.find(from, at + 1) == std::string::npos);
  changed.replace(at, from.size(), to);
  return {{file, changed}};
}

/// Several stages, several warps, a ragged last unit in FC2.
inline LayerCase case_of_many_stages(const Headers& headers = {}) {
  LayerCase c;
  c.problem = test::small_problem(256, 160, 4);
  c.tile = GemmTile{8, 2, 2, 1, 1, 3, 1};
  c.headers = headers;
  return c;
}

}  // namespace w4moe::lockstep
