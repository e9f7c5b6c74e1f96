// NVRTC as a table of functions found at run time: nothing of CUDA is needed to build this project, and a missing NVRTC is an
// error only when something is to be compiled. Only compile/ includes this header.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "w4moe/error.hpp"

namespace w4moe {

/// Where to look for NVRTC. The first of the steps that applies decides; a library that was named and cannot be loaded is an
/// error, not a reason to take another one.
struct NvrtcSearch {
  std::string explicit_path = {};     ///< 1. a library, or a folder that holds libnvrtc.so.<major>
  std::string environment_path = {};  ///< 2. the value of W4MOE_NVRTC, likewise
  bool use_loader = true;         ///< 3. libnvrtc.so.13, then .12, as the dynamic loader finds them
  std::vector<std::string> prefixes = {};  ///< 4. Python site-packages folders: nvidia/cu13/lib, nvidia/cuda_nvrtc/lib below each
  bool use_well_known = true;     ///< 5. /usr/local/cuda, /usr/local/cuda-*
};

/// nvrtcResult, nvrtcProgram: only what is used here.
using NvrtcStatus = int;
inline constexpr NvrtcStatus kNvrtcSuccess = 0;
inline constexpr NvrtcStatus kNvrtcBuiltinFailure = 7;
struct NvrtcProgramTag;
using NvrtcProgram = NvrtcProgramTag*;

struct NvrtcVersion {
  int major = 0;
  int minor = 0;

  auto operator<=>(const NvrtcVersion&) const = default;
};

/// Oldest release that is served. It is the first with targets beyond sm_90a; older ones trip over the templates' C++20: 12.4
/// refuses combine.cuh, and 12.0 ends the whole process ("Broken module found") on pack.cuh.
inline constexpr NvrtcVersion kOldestNvrtc{12, 8};

/// A loaded NVRTC. It stays loaded until the process ends: it registers clean-up of its own that must not be unmapped.
/// Thread-safe.
class NvrtcLibrary {
 public:
  /// toolchain_missing, naming every place that was tried and what each answered.
  static Result<std::shared_ptr<const NvrtcLibrary>> load(const NvrtcSearch& search = {});

  NvrtcVersion version() const { return version_; }
  /// The file that was loaded.
  const std::string& path() const { return path_; }
  /// Compute capabilities times ten that it compiles for (80, 90, 100, ...), ascending; empty if it does not tell.
  const std::vector<int>& supported_archs() const { return supported_archs_; }

  /// "13.0.88": version and build. The build is asked of the compiler with one tiny compile, done at the first call: the version
  /// alone does not tell two releases of one minor apart.
  Result<std::string> build() const;

  /// NVRTC's own name of a status: "NVRTC_ERROR_COMPILATION".
  std::string status_text(NvrtcStatus status) const;

  struct Output {
    NvrtcStatus status = kNvrtcSuccess;
    std::string log;                ///< whole, without trailing blanks; may be empty
    std::vector<std::byte> cubin;   ///< empty unless status is success
  };
  struct Header {
    const char* name;
    const char* text;
  };

  /// One compile, from texts in memory. The options must name a real architecture ("-arch=sm_90a").
  /// Whatever fails is in the status; the call throws nothing but std::bad_alloc.
  Output compile(const std::string& source, const char* source_name, const std::vector<Header>& headers,
                 const std::vector<std::string>& options) const;

  /// The error for an output that failed: compile_failed with the whole log, or toolchain_missing where NVRTC lacks its own
  /// builtins library (C24). `what` names the source for the reader.
  Error failure(const Output& output, const std::string& what) const;

 private:
  struct Functions {
    NvrtcStatus (*version)(int* major, int* minor) = nullptr;
    const char* (*get_error_string)(NvrtcStatus) = nullptr;
    NvrtcStatus (*create_program)(NvrtcProgram*, const char* source, const char* name, int headers, const char* const* texts,
                                  const char* const* names) = nullptr;
    NvrtcStatus (*destroy_program)(NvrtcProgram*) = nullptr;
    NvrtcStatus (*compile_program)(NvrtcProgram, int options, const char* const* option_texts) = nullptr;
    NvrtcStatus (*get_program_log_size)(NvrtcProgram, std::size_t*) = nullptr;
    NvrtcStatus (*get_program_log)(NvrtcProgram, char*) = nullptr;
    NvrtcStatus (*get_cubin_size)(NvrtcProgram, std::size_t*) = nullptr;
    NvrtcStatus (*get_cubin)(NvrtcProgram, char*) = nullptr;
    NvrtcStatus (*get_num_supported_archs)(int*) = nullptr;
    NvrtcStatus (*get_supported_archs)(int*) = nullptr;
  };

  NvrtcLibrary() = default;
  /// Loads one file; the text says why not.
  static std::optional<std::string> open(const std::string& file, NvrtcLibrary& library);
  std::optional<std::string> bind(void* handle);
  void preload_builtins() const;
  Result<std::string> probe_build() const;

  Functions functions_;
  NvrtcVersion version_;
  std::string path_;
  std::vector<int> supported_archs_;
  mutable std::mutex build_mutex_;
  mutable std::optional<std::string> build_;
};

/// Name of the builtins library that this NVRTC asks the loader for: "libnvrtc-builtins.so.13.0".
std::string nvrtc_builtins_name(NvrtcVersion version);

}  // namespace w4moe
