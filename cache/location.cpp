#include "cache/location.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>

namespace w4moe::cache {
namespace {

constexpr std::string_view kHint =
    "kernels are kept in memory only; set W4MOE_CACHE_DIR to an absolute path to keep them";

std::optional<std::string> non_empty(std::optional<std::string> value) {
  return value && !value->empty() ? value : std::nullopt;
}

// "/a//b/" -> "/a/b"; "/", "//" -> "".
std::string without_trailing_slashes(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

bool is_directory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Location unusable(LocationOrigin origin, std::string why) {
  return {"", origin, fmt::format("{}: {}", std::move(why), kHint)};
}

Location at(LocationOrigin origin, const std::string& value) {
  if (value.front() != '/')
    return unusable(origin, fmt::format("{}='{}' is not an absolute path", to_string(origin), value));
  std::string path = without_trailing_slashes(value);
  if (path.empty())
    return unusable(origin, fmt::format("{}='{}' names the root directory", to_string(origin), value));
  return {std::move(path), origin, ""};
}

}  // namespace

std::string_view to_string(LocationOrigin origin) {
  switch (origin) {
    case LocationOrigin::explicit_path:
      return "explicit";
    case LocationOrigin::w4moe_cache_dir:
      return "W4MOE_CACHE_DIR";
    case LocationOrigin::xdg_cache_home:
      return "XDG_CACHE_HOME";
    case LocationOrigin::home:
      return "HOME";
    case LocationOrigin::none:
      break;
  }
  return "none";
}

Location resolve_location(const std::optional<std::string>& explicit_path, const EnvFn& env) {
  if (const auto path = non_empty(explicit_path)) {
    std::error_code error;
    const std::string absolute = std::filesystem::absolute(*path, error).lexically_normal().string();
    return at(LocationOrigin::explicit_path, error ? *path : absolute);
  }
  if (const auto dir = non_empty(env("W4MOE_CACHE_DIR"))) return at(LocationOrigin::w4moe_cache_dir, *dir);

  // The XDG base directory specification: relative values are to be ignored.
  std::string ignored;
  if (const auto xdg = non_empty(env("XDG_CACHE_HOME"))) {
    if (xdg->front() == '/' && !without_trailing_slashes(*xdg).empty())
      return at(LocationOrigin::xdg_cache_home, without_trailing_slashes(*xdg) + "/w4moe");
    ignored = fmt::format("XDG_CACHE_HOME='{}' is not a usable absolute path and is ignored", *xdg);
  }
  const auto home = non_empty(env("HOME"));
  if (!home) return unusable(LocationOrigin::none, "HOME is not set");
  const std::string base = without_trailing_slashes(*home);
  if (home->front() != '/' || base.empty() || !is_directory(base))
    return unusable(LocationOrigin::home, fmt::format("HOME='{}' is not a usable directory", *home));
  return {base + "/.cache/w4moe", LocationOrigin::home, ignored};
}

Result<std::uint64_t> parse_size(std::string_view text) {
  if (text == "unlimited") return std::uint64_t{0};
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  int shift = 0;
  bool good = error == std::errc();
  if (good && stop != end) {
    const std::size_t unit = std::string_view("KMGT").find(*stop & ~0x20);
    good = stop + 1 == end && unit != std::string_view::npos;
    shift = 10 * (static_cast<int>(unit) + 1);
  }
  if (!good || (shift != 0 && value >> (64 - shift) != 0))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("size '{}': expected bytes with an optional K, M, G or T, or 'unlimited'", text)};
  return value << shift;
}

}  // namespace w4moe::cache
