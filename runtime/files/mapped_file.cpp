#include "runtime/files/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace w4moe {
namespace {

Error io_error(const std::string& path, std::string_view what) {
  return Error{ErrorCode::io, fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
}

/// Closes on every way out.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return io_error(path, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

Result<MappedFile> map_file(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return io_error(path, "cannot be opened");
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return io_error(path, "cannot be examined");
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::io, fmt::format("{}: is no regular file", path)};
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return MappedFile{};
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) return io_error(path, "cannot be mapped");
  MappedFile mapped;
  mapped.owner = std::shared_ptr<const void>(at, [size](const void* p) { ::munmap(const_cast<void*>(p), size); });
  mapped.bytes = std::span(static_cast<const std::byte*>(at), size);
  return mapped;
}

Status write_file(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  static std::atomic<int> counter{0};
  const std::string partial = fmt::format("{}.partial-{}-{}", path, ::getpid(), counter++);
  const Descriptor file{::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (file.fd < 0) return io_error(partial, "cannot be created");
  Status status;
  for (const std::span<const std::byte> part : parts) {
    if (status) status = write_all(file.fd, part, partial);
  }
  if (status && ::rename(partial.c_str(), path.c_str()) != 0) status = io_error(path, "cannot be put in place");
  if (!status) ::unlink(partial.c_str());
  return status;
}

}  // namespace w4moe
