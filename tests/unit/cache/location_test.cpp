#include "cache/location.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

using namespace w4moe;
using namespace w4moe::cache;

namespace {

Location resolve(std::map<std::string, std::string> env, std::optional<std::string> explicit_path = {}) {
  return resolve_location(explicit_path, [env](const char* name) -> std::optional<std::string> {
    const auto it = env.find(name);
    return it == env.end() ? std::nullopt : std::optional(it->second);
  });
}

}  // namespace

TEST_CASE("the order of places: explicit, W4MOE_CACHE_DIR, XDG_CACHE_HOME, HOME") {
  const std::string home = std::filesystem::temp_directory_path();
  std::map<std::string, std::string> env = {
      {"W4MOE_CACHE_DIR", "/a"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", home}};
  CHECK(resolve(env, "/e/").path == "/e");
  CHECK(resolve(env, "/e").origin == LocationOrigin::explicit_path);
  CHECK(resolve(env).path == "/a");
  CHECK(resolve(env).origin == LocationOrigin::w4moe_cache_dir);
  env.erase("W4MOE_CACHE_DIR");
  CHECK(resolve(env).path == "/x/w4moe");
  CHECK(resolve(env).origin == LocationOrigin::xdg_cache_home);
  env.erase("XDG_CACHE_HOME");
  CHECK(resolve(env).path == home + "/.cache/w4moe");
  CHECK(resolve(env).origin == LocationOrigin::home);
  CHECK(resolve(env).warning.empty());
  CHECK(to_string(resolve(env).origin) == "HOME");
}

TEST_CASE("C06: HOME unset, empty, / or missing means memory only, with a warning that names the variable") {
  for (const auto& env : std::vector<std::map<std::string, std::string>>{{},
                                                                         {{"HOME", ""}},
                                                                         {{"HOME", "/"}},
                                                                         {{"HOME", "//"}},
                                                                         {{"HOME", "/nonexistent"}},
                                                                         {{"HOME", "relative"}},
                                                                         {{"HOME", "/proc/self/exe"}}}) {
    const Location location = resolve(env);
    CHECK(location.path.empty());
    CHECK(location.warning.find("W4MOE_CACHE_DIR") != std::string::npos);
    CHECK(location.warning.find("HOME") != std::string::npos);
  }
}

TEST_CASE(
    "C06: a relative XDG_CACHE_HOME is ignored, a relative or root W4MOE_CACHE_DIR is refused, not replaced") {
  const std::string home = std::filesystem::temp_directory_path();
  for (const char* xdg : {"cache", "./cache", "/", "//"}) {
    const Location ignored = resolve({{"XDG_CACHE_HOME", xdg}, {"HOME", home}});
    CHECK(ignored.path == home + "/.cache/w4moe");
    CHECK(ignored.warning.find("XDG_CACHE_HOME") != std::string::npos);
  }
  for (const char* dir : {"cache", ".", "/", "///"}) {
    const Location refused = resolve({{"W4MOE_CACHE_DIR", dir}, {"HOME", home}});
    CHECK(refused.path.empty());
    CHECK(refused.origin == LocationOrigin::w4moe_cache_dir);
    CHECK_FALSE(refused.warning.empty());
  }
  CHECK(resolve({{"W4MOE_CACHE_DIR", ""}, {"HOME", home}}).origin == LocationOrigin::home);
}

TEST_CASE("an explicit relative path is the caller's: it is taken from the current directory") {
  CHECK(resolve({}, "out/kernels").path == (std::filesystem::current_path() / "out/kernels").string());
  CHECK(resolve({}, "/").path.empty());
}

TEST_CASE("sizes are read with their units and nothing else") {
  CHECK(*parse_size("2G") == std::uint64_t{2} << 30);
  CHECK(*parse_size("512m") == std::uint64_t{512} << 20);
  CHECK(*parse_size("64K") == 65536);
  CHECK(*parse_size("1T") == std::uint64_t{1} << 40);
  CHECK(*parse_size("123") == 123);
  CHECK(*parse_size("0") == 0);
  CHECK(*parse_size("unlimited") == 0);
  for (const char* bad : {"", "G", "-1", "2GB", "1.5G", "2 G", " 2G", "99999999999999999999", "99999999999T"}) {
    const auto result = parse_size(bad);
    REQUIRE_FALSE(result);
    CHECK(result.error().message.find(bad) != std::string::npos);
  }
}
