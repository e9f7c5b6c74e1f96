// The functions of NVRTC that the loader looks up, over one FakeNvrtc.
#include "tests/unit/generator_compile/fake_nvrtc/fake_nvrtc.hpp"

#include <algorithm>
#include <cstring>

namespace {

w4moe::test::FakeNvrtc state;

struct Program {
  std::string source;
  bool is_probe = false;
};

const std::vector<std::byte>& cubin_of(const Program* program) { return program->is_probe ? state.probe_cubin : state.cubin; }

}  // namespace

extern "C" {

w4moe::test::FakeNvrtc* fake_nvrtc() { return &state; }

int nvrtcVersion(int* major, int* minor) {
  *major = state.major;
  *minor = state.minor;
  return 0;
}
const char* nvrtcGetErrorString(int status) {
  return status == 6 ? "NVRTC_ERROR_COMPILATION" : status == 7 ? "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE" : "NVRTC_ERROR_OTHER";
}
int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers, const char* const*, const char* const* names) {
  auto* p = new Program{source, std::string(source).find("__CUDACC_VER_BUILD__") != std::string::npos};
  *program = p;
  ++state.programs;
  if (!p->is_probe) {
    state.source = source;
    state.source_name = name;
    state.headers.assign(names, names + headers);
  }
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  --state.programs;
  return 0;
}
int nvrtcCompileProgram(void* program, int options, const char* const* texts) {
  if (static_cast<Program*>(program)->is_probe) {
    ++state.probes;
  } else {
    ++state.compiles;
    state.options.assign(texts, texts + options);
  }
  return state.status;
}
int nvrtcGetProgramLogSize(void*, std::size_t* bytes) {
  *bytes = state.log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void*, char* log) {
  std::memcpy(log, state.log.c_str(), state.log.size() + 1);
  return 0;
}
int nvrtcGetCUBINSize(void* program, std::size_t* bytes) {
  *bytes = cubin_of(static_cast<Program*>(program)).size();
  return 0;
}
int nvrtcGetCUBIN(void* program, char* cubin) {
  const auto& bytes = cubin_of(static_cast<Program*>(program));
  std::memcpy(cubin, bytes.data(), bytes.size());
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(state.archs.size());
  return 0;
}
int nvrtcGetSupportedArchs(int* archs) {
  std::copy(state.archs.begin(), state.archs.end(), archs);
  return 0;
}
}
