// The configuration file: settings of a machine or a user that are neither options nor variables.
//
//   # comment
//   cache_dir = /data/kernels
//   jobs = 4
#pragma once

#include <map>
#include <optional>
#include <string>

#include "cache/location.hpp"
#include "w4moe/error.hpp"

namespace w4moe {

struct ConfigFile {
  struct Value {
    std::string text;
    int line = 0;
  };
  std::string path;    ///< empty: there is none
  std::string origin;  ///< what made this path: "environment" or "default"
  std::map<std::string, Value> values;

  /// The value of a key, or null.
  const Value* find(const std::string& key) const;
};

/// $W4MOE_CONFIG, else $XDG_CONFIG_HOME/w4moe/config, else $HOME/.config/w4moe/config; only the first must exist. invalid_argument,
/// with file and line, for what is no `key = value` with a known key; io where a file cannot be read. A file says which code is
/// loaded from where, so that one that belongs to another user (but root) or that everybody may write is refused.
Result<ConfigFile> read_config_file(const cache::EnvFn& environment);

}  // namespace w4moe
