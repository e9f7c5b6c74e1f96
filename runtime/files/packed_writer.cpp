// Packing straight into a mapped file: the destination is the page cache, and the file has its name only when it is whole.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "generator/problem/errors.hpp"
#include "runtime/files/packed_file.hpp"
#include "runtime/files/safetensors.hpp"

namespace w4moe {
namespace {

constexpr i64 kPageBytes = 4096;

/// A file under a name of its own until it is put in place. One process at a time has it; what a killed one left is used again.
class PartialFile {
 public:
  explicit PartialFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (at_ != nullptr) ::munmap(at_, static_cast<std::size_t>(bytes_));
    if (fd_ < 0) return;
    if (!placed_) ::unlink(partial_.c_str());
    ::close(fd_);  // gives up the lock
  }

  Status open(i64 bytes) {
    if (Status s = lock(); !s) return s;
    // Space is taken first: a full disk is an error here, and not a signal in the middle of packing.
    if (::ftruncate(fd_, 0) != 0) return fault("cannot be emptied", errno);
    if (const int error = ::posix_fallocate(fd_, 0, bytes); error != 0) return fault(fmt::format("has no room for {} bytes", bytes), error);
    void* const at = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (at == MAP_FAILED) return fault("cannot be mapped", errno);
    at_ = at;
    bytes_ = bytes;
    return {};
  }

  std::byte* data() { return static_cast<std::byte*>(at_); }

  Status put_in_place() {
    if (::fsync(fd_) != 0) return fault("cannot be written", errno);
    if (::rename(partial_.c_str(), path_.c_str()) != 0) return fault("cannot be put in place", errno);
    placed_ = true;
    return {};
  }

 private:
  Error fault(const std::string& what, int error) const { return Error{ErrorCode::io, fmt::format("{}: {}: {}", partial_, what, std::strerror(error))}; }

  /// The lock is on the file, and another may have put that file in place meanwhile: then there is a new one to be locked.
  Status lock() {
    for (;;) {
      const int fd = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
      if (fd < 0) return fault("cannot be created", errno);
      if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        ::close(fd);
        return error == EWOULDBLOCK ? Error{ErrorCode::io, fmt::format("{}: another process is packing this file", partial_)} : fault("cannot be locked", error);
      }
      struct stat opened {};
      struct stat named {};
      if (::fstat(fd, &opened) == 0 && ::stat(partial_.c_str(), &named) == 0 && opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
        fd_ = fd;
        return {};
      }
      ::close(fd);
    }
  }

  const std::string path_, partial_;
  int fd_ = -1;
  void* at_ = nullptr;
  i64 bytes_ = 0;
  bool placed_ = false;
};

/// The header, padded so that the first layer begins at a page.
Result<std::string> page_header(const std::vector<FileTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  Result<std::string> header = safetensors_header(tensors, metadata);
  if (!header) return header;
  const auto length = static_cast<i64>(header->size());
  header->resize(static_cast<std::size_t>(align_up(length, kPageBytes)), ' ');
  const u64 stated = header->size() - sizeof(u64);
  std::memcpy(header->data(), &stated, sizeof(stated));
  return header;
}

}  // namespace

Status write_packed(const std::string& path, std::span<const CheckpointLayer> layers, const PackOptions& options) {
  if (layers.empty()) return invalid_argument("{}: no layer to pack", path);
  std::vector<FileTensor> tensors;
  std::map<std::string, std::string> metadata{{"w4moe.packed", std::string(kPackedVersion)}};
  i64 bytes = 0;
  for (const CheckpointLayer& layer : layers) {
    const Result<i64> layer_bytes = prepared_weight_bytes(layer.problem);
    if (!layer_bytes) return layer_bytes.error();
    tensors.push_back(FileTensor{layer.prefix + "packed", "U8", {*layer_bytes}, nullptr, *layer_bytes});
    if (!metadata.emplace(layer.prefix, packed_entry(layer)).second) return invalid_argument("{}: layer '{}' is given twice", path, layer.prefix);
    bytes += *layer_bytes;
  }
  const Result<std::string> header = page_header(tensors, metadata);
  if (!header) return header.error();
  PartialFile file(path);
  if (Status s = file.open(static_cast<i64>(header->size()) + bytes); !s) return s;
  std::memcpy(file.data(), header->data(), header->size());
  std::byte* at = file.data() + header->size();
  i64 experts_before = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    PackOptions of_layer = options;
    if (options.on_expert_done) of_layer.on_expert_done = [&](i64 expert) { options.on_expert_done(experts_before + expert); };
    const std::span<std::byte> dest(at, static_cast<std::size_t>(tensors[i].bytes));
    if (Status s = pack_on_cpu(layers[i].problem, layers[i].source, dest, of_layer); !s) {
      return Error{s.error().code, fmt::format("{}: {}", layers[i].prefix, s.error().message)};
    }
    at += tensors[i].bytes;
    experts_before += layers[i].problem.shape.experts;
  }
  return file.put_in_place();
}

}  // namespace w4moe
