// Golden files: expected output beside the test that checks it. Run with W4MOE_UPDATE_GOLDEN=1 to rewrite them, then read the
// difference before committing it.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace w4moe::test {

/// The file's content, or `actual` after writing it where W4MOE_UPDATE_GOLDEN is set.
inline std::string golden(const std::string& path, const std::string& actual) {
  if (std::getenv("W4MOE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << actual;
    return actual;
  }
  std::ifstream in(path, std::ios::binary);
  return in ? std::string(std::istreambuf_iterator<char>(in), {}) : "missing golden file " + path;
}

}  // namespace w4moe::test
