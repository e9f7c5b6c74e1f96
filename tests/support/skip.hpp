// Skipping a test that lacks its hardware or its compiler, so that CTest reports "Skipped" and not "Passed".
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace w4moe::test {

/// CTest starts one process a test case and sets W4MOE_TEST_SKIP_CODE: the process then ends here with that code, which
/// CTest shows as skipped. By hand, where one process runs many cases, it returns true and the case returns.
inline bool skip_case(const std::string& reason) {
  std::fprintf(stderr, "skipped: %s\n", reason.c_str());
  const char* code = std::getenv("W4MOE_TEST_SKIP_CODE");
  if (code == nullptr) return true;
  std::fflush(nullptr);
  std::_Exit(std::atoi(code));
}

}  // namespace w4moe::test

/// Ends the current test case as skipped; the reason is printed.
#define W4MOE_SKIP(reason)                       \
  do {                                           \
    if (::w4moe::test::skip_case(reason)) return; \
  } while (false)
