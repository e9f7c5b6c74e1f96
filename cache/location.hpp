// Where the cache lives, and why there: `doctor` shows both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "w4moe/error.hpp"

namespace w4moe::cache {

/// Looks one environment variable up. The library reads the environment in one place and passes this in.
using EnvFn = std::function<std::optional<std::string>(const char* name)>;

/// What decided the location.
enum class LocationOrigin { explicit_path, w4moe_cache_dir, xdg_cache_home, home, none };

/// "explicit", "W4MOE_CACHE_DIR", "XDG_CACHE_HOME", "HOME" or "none".
std::string_view to_string(LocationOrigin origin);

struct Location {
  std::string path;                              ///< absolute; empty = keep kernels in memory only
  LocationOrigin origin = LocationOrigin::none;  ///< what decided it, also when what it says cannot be used
  std::string warning;  ///< why there is no path, or why a variable was ignored; else empty
};

/// Explicit path > $W4MOE_CACHE_DIR > $XDG_CACHE_HOME/w4moe (only if absolute) > $HOME/.cache/w4moe.
/// An empty variable counts as unset. Without a usable one the cache is in memory only, with a warning: never /tmp,
/// never below "/" itself, never the current directory. A relative explicit path is taken from the current directory.
/// Looks at the file system only to see whether $HOME is a directory.
Location resolve_location(const std::optional<std::string>& explicit_path, const EnvFn& env);

/// "2G", "512M", "1048576": bytes with an optional K, M, G or T (powers of 1024). 0 or "unlimited" = no limit (0).
Result<std::uint64_t> parse_size(std::string_view text);

}  // namespace w4moe::cache
