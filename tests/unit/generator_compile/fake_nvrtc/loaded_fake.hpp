// A copy of the fake NVRTC in a folder of a test's: each copy is a library of its own, with its own state.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "tests/unit/generator_compile/fake_nvrtc/fake_nvrtc.hpp"

namespace w4moe::test {

class LoadedFake {
 public:
  /// Makes the folder and puts libnvrtc.so.13 into it.
  explicit LoadedFake(const std::filesystem::path& folder) : file_((folder / "libnvrtc.so.13").string()) {
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(W4MOE_FAKE_NVRTC, file_);
    handle_ = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    state_ = reinterpret_cast<FakeNvrtc* (*)()>(dlsym(handle_, "fake_nvrtc"))();
  }
  LoadedFake(const LoadedFake&) = delete;
  LoadedFake& operator=(const LoadedFake&) = delete;

  const std::string& file() const { return file_; }
  FakeNvrtc* operator->() { return state_; }

 private:
  std::string file_;
  void* handle_ = nullptr;
  FakeNvrtc* state_ = nullptr;
};

}  // namespace w4moe::test
