#include "runtime/config_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

constexpr std::size_t kMaxFileBytes = 64 << 10;
constexpr std::array kKnownKeys = {"arch",  "cache", "cache_dir",    "cache_max_size", "cache_shared", "dump_dir",
                                   "jit",   "jobs",  "log",          "memory_limit",   "nvrtc",        "readonly_dirs"};

std::string trimmed(const std::string& text) {
  constexpr const char* kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string::npos ? std::string() : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// Where the file may be, and whether it must be there.
void locate(const cache::EnvFn& environment, ConfigFile& file) {
  const auto absolute = [&](const char* name) {
    const std::optional<std::string> value = environment(name);
    return value && !value->empty() && value->front() == '/' ? *value : std::string();
  };
  file.origin = "default";
  if (const auto named = environment("W4MOE_CONFIG"); named && !named->empty()) {
    file.path = *named;
    file.origin = "environment";
  } else if (const std::string xdg = absolute("XDG_CONFIG_HOME"); !xdg.empty()) {
    file.path = xdg + "/w4moe/config";
  } else if (const std::string home = absolute("HOME"); !home.empty()) {
    file.path = home + "/.config/w4moe/config";
  }
}

Status check_trust(const std::string& path, const struct stat& info) {
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return invalid_argument("{} belongs to user {} and is not read (accepted: a file of this user or of root)", path, info.st_uid);
  }
  if ((info.st_mode & S_IWOTH) != 0 && S_ISREG(info.st_mode)) return invalid_argument("{} can be written by everybody and is not read (chmod o-w)", path);
  return {};
}

Status parse(const std::string& text, ConfigFile& file) {
  int number = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) return invalid_argument("{}:{}: '{}' is not accepted (accepted: key = value, and # comments)", file.path, number, line);
    const std::string key = trimmed(line.substr(0, equals));
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), key) == kKnownKeys.end()) {
      return invalid_argument("{}:{}: '{}' is no setting (accepted: {})", file.path, number, key, fmt::join(kKnownKeys, ", "));
    }
    if (!file.values.emplace(key, ConfigFile::Value{trimmed(line.substr(equals + 1)), number}).second) {
      return invalid_argument("{}:{}: {} is set twice, first in line {}", file.path, number, key, file.values[key].line);
    }
  }
  return {};
}

}  // namespace

const ConfigFile::Value* ConfigFile::find(const std::string& key) const {
  const auto it = values.find(key);
  return it == values.end() || it->second.text.empty() ? nullptr : &it->second;  // empty counts as unset, as with variables
}

Result<ConfigFile> read_config_file(const cache::EnvFn& environment) {
  ConfigFile file;
  locate(environment, file);
  if (file.path.empty()) return file;
  struct stat info {};
  if (::stat(file.path.c_str(), &info) != 0) {
    const int error = errno;
    if (file.origin == "environment") return Error{ErrorCode::io, fmt::format("W4MOE_CONFIG={}: {}", file.path, std::strerror(error))};
    file.path.clear();  // nobody asked for it
    return file;
  }
  if (Status s = check_trust(file.path, info); !s) return s.error();
  std::ifstream in(file.path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || !in.eof()) return Error{ErrorCode::io, fmt::format("{}: cannot be read, or is larger than {} bytes", file.path, kMaxFileBytes)};
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (Status s = parse(text, file); !s) return s.error();
  return file;
}

}  // namespace w4moe
