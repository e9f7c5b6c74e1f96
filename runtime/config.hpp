// The settings of the library: options of the caller > environment > defaults. The only reader of the environment.
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
  std::string dump_dir;
  LogSettings log;
  std::vector<ConfigRow> rows;        ///< one for each of the above, with its origin
};

/// Every setting. invalid_argument, naming the variable and what it accepts, for a value that cannot be read.
Result<Config> resolve_config(const KernelOptions& options, const cache::EnvFn& environment);

/// The process's environment.
std::optional<std::string> process_environment(const char* name);

}  // namespace w4moe
