// What the fake NVRTC answers, and what it was asked. Tests reach it through dlsym(handle, "fake_nvrtc").
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace w4moe::test {

struct FakeNvrtc {
  int major = 13;
  int minor = 0;
  std::vector<int> archs = {75, 80, 86, 89, 90, 100, 103, 120, 121};
  int status = 0;                     ///< of every compile
  std::string log;
  std::vector<std::byte> cubin;       ///< of every compile but the probe's
  std::vector<std::byte> probe_cubin; ///< of a source that asks for __CUDACC_VER_BUILD__

  int compiles = 0;                   ///< without the probe's
  int probes = 0;
  std::string source;
  std::string source_name;
  std::vector<std::string> options;
  std::vector<std::string> headers;   ///< names
  int programs = 0;                   ///< made and not destroyed
};

}  // namespace w4moe::test
