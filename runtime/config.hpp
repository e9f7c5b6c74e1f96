// The settings of the library: options of the caller > environment > configuration file > defaults. The only reader of the environment.
#pragma once

#include "cache/kernel_cache.hpp"
#include "w4moe/build.hpp"

namespace w4moe {

struct LogSettings {
  bool enabled = false;
  LogLevel level = LogLevel::warning;
  std::string file;  ///< empty: stderr
};

struct Config {
  JitMode jit = JitMode::on;
  cache::CacheOptions cache;          ///< without its warn function
  std::string cache_warning;          ///< why there is no directory, or why a variable was ignored
  std::string nvrtc_option;           ///< library or folder that the caller named
  std::string nvrtc_environment;      ///< likewise W4MOE_NVRTC
  int jobs = 1;
  std::uint64_t memory_bytes = 0;     ///< 0: what the machine or the cgroup has
  std::string dump_dir;
  LogSettings log;
  std::string arch;                   ///< target of tools that are not told one
  std::vector<ConfigRow> rows;        ///< one for each of the above, with its origin
};

/// Every setting. invalid_argument, naming the variable and what it accepts, for a value that cannot be read.
Result<Config> resolve_config(const KernelOptions& options, const cache::EnvFn& environment);

/// The target that tools plan for where none is named, without reading the other settings.
Result<std::string> default_arch(const cache::EnvFn& environment);

/// The process's environment.
std::optional<std::string> process_environment(const char* name);

}  // namespace w4moe
