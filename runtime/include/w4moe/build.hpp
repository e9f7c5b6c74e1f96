// Making kernels: where they come from, what is done where the cache has none, and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "w4moe/log.hpp"
#include "w4moe/plan.hpp"

namespace w4moe {

enum class JitMode {
  on,   ///< what the cache does not hold is compiled
  off,  ///< a kernel that the cache does not hold is an error that says what to add to the manifest
};

enum class CacheUse {
  on,
  readonly,  ///< directories are read, never written
  off,       ///< in memory only
};

/// Where kernels come from. What is not set here is taken from the environment, then from the configuration file
/// (W4MOE_CONFIG, else ~/.config/w4moe/config), then from the defaults; `describe_config` tells each value and its origin.
struct KernelOptions {
  std::optional<JitMode> jit;                                ///< W4MOE_JIT=on|off; on
  std::optional<CacheUse> cache;                             ///< W4MOE_CACHE=on|off|readonly; on
  std::optional<std::string> cache_dir;                      ///< W4MOE_CACHE_DIR; $XDG_CACHE_HOME/w4moe or ~/.cache/w4moe
  std::optional<std::vector<std::string>> readonly_dirs;     ///< W4MOE_CACHE_READONLY_DIRS, a list with ':'; none
  std::optional<std::uint64_t> cache_max_bytes;              ///< W4MOE_CACHE_MAX_SIZE ("2G"); 2 GiB; 0 = no limit
  std::optional<bool> cache_shared;                          ///< W4MOE_CACHE_SHARED=1: trust directories of other users; no
  std::optional<std::string> nvrtc;                          ///< W4MOE_NVRTC: library file or folder; where it is found
  std::optional<int> jobs;                                   ///< W4MOE_JOBS: compiles at a time; the processors, at most 8
  std::optional<std::uint64_t> memory_bytes;                 ///< W4MOE_MEMORY_LIMIT ("4G") for compiling; what the machine or cgroup has
  std::optional<std::string> dump_dir;                       ///< W4MOE_DUMP_DIR: sources, logs and cubins of compiles; none
  bool public_cache_dir = false;                             ///< files of cache_dir are readable by all: it is to be shipped
  LogFn log;                                                 ///< and W4MOE_LOG=warn|info|debug[,file]
};

/// One kernel of a build.
struct KernelReport {
  std::string key;            ///< 64 hex digits; the same kernel has the same key everywhere
  std::string name;           ///< of the first plan that uses it: "fc1.n16"
  std::string arch;
  std::string builder;        ///< compiler build that made it, "13.0.88"
  std::string description;    ///< one line for people
  int registers = 0;
  std::int64_t spill_bytes = 0;
  std::int64_t smem_bytes = 0;   ///< dynamic and static shared memory of one CTA
  double compile_ms = 0;      ///< 0 for a hit
  bool hit = false;           ///< the cache had it
  std::string error;          ///< why it failed; else empty
};

struct BuildReport {
  std::vector<KernelReport> kernels;  ///< each distinct kernel once, in the order of the plans
  int compiled = 0;
  int hits = 0;
  int jobs = 0;                       ///< compiles at a time: those asked for, cut down to what memory bears
  int failed = 0;                     ///< only with keep_going; the first failure is the call's error otherwise
  double seconds = 0;
};

/// Called after each kernel, from one thread at a time.
using BuildProgressFn = std::function<void(const KernelReport& kernel, int done, int total)>;

struct BuildOptions {
  BuildProgressFn progress;
  bool keep_going = false;            ///< a kernel that fails is reported and the others are built
  std::function<bool()> cancelled;    ///< asked before each compile; true ends the build with an error
  /// Asked once for each distinct kernel (key, name, arch and description are set): false leaves it out. Null: all.
  std::function<bool(const KernelReport&)> wanted;
};

/// Builds or finds every kernel of the plans, and the two that pack the weights of each format, each distinct one once, without any driver or GPU: `w4moe build`.
/// toolchain_missing without NVRTC where something must be compiled; compile_failed with the whole log; not_prepared with JIT off.
Result<BuildReport> build_kernels(std::span<const Plan> plans, const KernelOptions& kernels = {}, const BuildOptions& options = {});
inline Result<BuildReport> build_kernels(const Plan& plan, const KernelOptions& kernels = {}, const BuildOptions& options = {}) {
  return build_kernels(std::span<const Plan>(&plan, 1), kernels, options);
}

/// What a build of the plans would make, without making it: the rows have key, name, arch, description and hit.
Result<BuildReport> list_kernels(std::span<const Plan> plans, const KernelOptions& kernels = {});

/// One setting, for `doctor`.
struct ConfigRow {
  std::string name;      ///< "cache_dir"
  std::string variable;  ///< "W4MOE_CACHE_DIR"
  std::string value;
  std::string origin;    ///< "option", "environment", "config file", "default"
};

/// Every setting as it holds for these options in this environment. invalid_argument for a variable that cannot be read.
Result<std::vector<ConfigRow>> describe_config(const KernelOptions& kernels = {});

}  // namespace w4moe
