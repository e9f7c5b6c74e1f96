#include "tools/cli/files.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

namespace w4moe::cli {
namespace {

struct Close {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, Close>;

Error io_error(const char* what, const std::string& path) {
  return Error{ErrorCode::io, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))};
}

template <class Container>
Result<Container> read_all(const std::string& path) {
  const File file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file) return io_error("open", path);
  Container bytes;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
    const auto* begin = reinterpret_cast<const typename Container::value_type*>(buffer);
    bytes.insert(bytes.end(), begin, begin + count);
  }
  if (std::ferror(file.get()) != 0) return io_error("read", path);
  return bytes;
}

}  // namespace

Result<std::string> read_text(const std::string& path) { return read_all<std::string>(path); }
Result<std::vector<std::byte>> read_bytes(const std::string& path) { return read_all<std::vector<std::byte>>(path); }

Status write_text(const std::string& path, std::string_view text) {
  File file(std::fopen(path.c_str(), "wb"));
  if (!file) return io_error("create", path);
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) return io_error("write", path);
  if (std::fclose(file.release()) != 0) return io_error("write", path);
  return {};
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Error{ErrorCode::io, fmt::format("cannot create the folder {}: {}", path, error.message())};
  return {};
}

}  // namespace w4moe::cli
