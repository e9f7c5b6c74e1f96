#include "tools/cli/sass.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

namespace w4moe::cli {
namespace {

std::optional<std::string> on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "";
  while (!folders.empty()) {
    const std::size_t colon = folders.find(':');
    const std::string candidate = folders.substr(0, colon) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    folders = colon == std::string::npos ? "" : folders.substr(colon + 1);
  }
  return std::nullopt;
}

/// A file that is gone when the object dies.
class TempFile {
 public:
  explicit TempFile(std::span<const std::byte> bytes) {
    std::error_code ignored;
    std::string name = (std::filesystem::temp_directory_path(ignored) / "w4moe-XXXXXX").string();
    const int fd = ::mkstemp(name.data());
    if (fd < 0) return;
    name_ = name;
    std::FILE* file = ::fdopen(fd, "wb");
    good_ = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    if (file != nullptr) good_ = std::fclose(file) == 0 && good_;
  }
  ~TempFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  bool good() const { return good_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  bool good_ = false;
};

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

Result<std::string> disassemble(std::span<const std::byte> cubin) {
  std::string command;
  if (const auto tool = on_path("nvdisasm")) {
    command = quoted(*tool) + " -c ";
  } else if (const auto dump = on_path("cuobjdump")) {
    command = quoted(*dump) + " -sass ";
  } else {
    return Error{ErrorCode::toolchain_missing, "--sass needs nvdisasm or cuobjdump of a CUDA toolkit on PATH"};
  }
  const TempFile file(cubin);
  if (!file.good()) return Error{ErrorCode::io, fmt::format("cannot write a temporary file: {}", std::strerror(errno))};
  std::FILE* pipe = ::popen((command + quoted(file.name())).c_str(), "r");
  if (pipe == nullptr) return Error{ErrorCode::io, fmt::format("cannot run {}: {}", command, std::strerror(errno))};
  std::string text;
  char buffer[1 << 14];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, count);
  if (::pclose(pipe) != 0) return Error{ErrorCode::io, fmt::format("{} failed", command)};
  return text;
}

}  // namespace w4moe::cli
