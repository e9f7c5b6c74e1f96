// The compiler that the tests of this folder share, and how they skip where there is none.
#pragma once

#include <cstdlib>
#include <string>

#include "generator/compile/nvrtc_compiler.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"

namespace w4moe::test {

inline NvrtcSearch nvrtc_search() {
  NvrtcSearch search;
  if (const char* path = std::getenv("W4MOE_NVRTC")) search.environment_path = path;
  return search;
}

/// One for the process: NVRTC is slow to load.
inline NvrtcCompiler& nvrtc() {
  static NvrtcCompiler compiler(nvrtc_search());
  return compiler;
}

}  // namespace w4moe::test

/// Ends the test case as skipped where this machine has no NVRTC; one that W4MOE_NVRTC names, as CI does, must load.
#define W4MOE_NEEDS_NVRTC()                                                          \
  if (const auto loaded = ::w4moe::test::nvrtc().library(); !loaded) {               \
    if (!::w4moe::test::nvrtc_search().environment_path.empty()) FAIL(loaded.error().message); \
    W4MOE_SKIP(loaded.error().message);                                              \
  }                                                                                  \
  static_assert(true)
