#include "cache/disk_root.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace w4moe::cache {
namespace {

constexpr std::string_view kSuffix = ".cubin";

// https://bford.info/cachedir: the first 43 bytes are the signature that backup tools look for.
constexpr std::string_view kCacheDirTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Compiled kernels of w4moe; safe to delete. See https://bford.info/cachedir/\n";

void write_cachedir_tag(int root, mode_t mode) {
  const UniqueFd fd(::openat(root, "CACHEDIR.TAG", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) return;
  [[maybe_unused]] const ssize_t n = ::write(fd.get(), kCacheDirTag.data(), kCacheDirTag.size());
  ::fchmod(fd.get(), mode);
}

std::optional<EntryName> parse_name(const std::string& shard, std::string_view file) {
  if (!file.ends_with(kSuffix) || file.size() < 62 + kSuffix.size()) return std::nullopt;
  file.remove_suffix(kSuffix.size());
  const auto key = Key::from_hex(shard + std::string(file.substr(0, 62)));
  std::string_view builder = file.substr(62);
  if (!builder.empty() && (builder.front() != '-' || builder.size() == 1)) return std::nullopt;
  if (!builder.empty()) builder.remove_prefix(1);
  if (!key || !valid_builder(builder)) return std::nullopt;
  return EntryName(*key, std::string(builder));
}

}  // namespace

std::string DiskRoot::file_name(const EntryName& name) {
  return name.key.hex().substr(2) + (name.builder.empty() ? "" : "-" + name.builder) + std::string(kSuffix);
}

DiskRoot::Opened DiskRoot::open(const DiskOptions& options, bool create) {
  create = create && !options.read_only;
  auto out = std::make_shared<DiskRoot>();
  out->trust_ = options.trust;
  if (options.public_read) out->dir_mode_ = 0755, out->file_mode_ = 0644;
  const std::optional<mode_t> made = create ? std::optional(out->dir_mode_) : std::nullopt;
  OpenedDir base = open_trusted_dir(options.root, options.trust, made);
  if (!base.fd) return {nullptr, base.error, std::move(base.why)};
  if (options.trust.shared && !base.created) {
    struct stat info;  // whoever shares a directory has said by its mode with whom
    if (::fstat(base.fd.get(), &info) == 0)
      out->dir_mode_ = info.st_mode & 07777, out->file_mode_ = info.st_mode & 0666;
  }
  const std::optional<mode_t> mode = create ? std::optional(out->dir_mode_) : std::nullopt;
  const bool empty_before = base.created || (create && names_in(base.fd.get()).empty());
  OpenedDir version = open_trusted_subdir(base.fd.get(), "v1", options.trust, mode);
  if (!version.fd) return {nullptr, version.error, fmt::format("{}: {}", options.root, version.why)};
  // A directory that held other things before is not ours to mark as worthless.
  if (empty_before) write_cachedir_tag(base.fd.get(), out->file_mode_);
  OpenedDir obj = open_trusted_subdir(version.fd.get(), "obj", options.trust, mode);
  if (!obj.fd) return {nullptr, obj.error, fmt::format("{}/v1: {}", options.root, obj.why)};
  out->base_ = std::move(base.fd);
  out->obj_ = std::move(obj.fd);
  if (!options.read_only) {
    out->tmp_ = open_trusted_subdir(version.fd.get(), "tmp", options.trust, mode).fd;
    out->lock_ = open_trusted_subdir(version.fd.get(), "lock", options.trust, mode).fd;
    out->stats_ = open_trusted_subdir(version.fd.get(), "stats", options.trust, mode).fd;
  }
  return {std::move(out), 0, {}};
}

OpenedDir DiskRoot::shard(const std::string& name, bool create) const {
  return open_trusted_subdir(obj_.get(), name.c_str(), trust_,
                             create ? std::optional(dir_mode_) : std::nullopt);
}

std::vector<EntryFile> DiskRoot::scan_shard(const std::string& shard_name) const {
  std::vector<EntryFile> files;
  const OpenedDir dir = shard(shard_name, false);
  if (!dir.fd) return files;
  for (std::string& file : names_in(dir.fd.get())) {
    const auto name = parse_name(shard_name, file);
    if (!name) continue;
    EntryFile item{shard_name, std::move(file), *name};
    if (::fstatat(dir.fd.get(), item.file.c_str(), &item.info, AT_SYMLINK_NOFOLLOW) == 0)
      files.push_back(std::move(item));
  }
  return files;
}

std::vector<EntryFile> DiskRoot::scan() const {
  std::vector<EntryFile> files;
  for (const std::string& name : names_in(obj_.get()))
    if (name.size() == 2)
      for (EntryFile& file : scan_shard(name)) files.push_back(std::move(file));
  return files;
}

std::vector<EntryFile> DiskRoot::files_of(const Key& key) const {
  std::vector<EntryFile> files = scan_shard(shard_name(key));
  std::erase_if(files, [&](const EntryFile& file) { return file.name.key != key; });
  std::stable_sort(files.begin(), files.end(), [](const EntryFile& a, const EntryFile& b) {
    return builder_less(b.name.builder, a.name.builder);
  });
  return files;
}

DiskRoot::ReadEntry DiskRoot::read(const std::string& shard_name, const std::string& file,
                                   const EntryName& name) const {
  const OpenedDir dir = shard(shard_name, false);
  if (!dir.fd)
    return {dir.error == ENOENT ? ReadFile::State::absent : ReadFile::State::failed, {}, {}, dir.why};
  ReadFile read = read_trusted_file(dir.fd.get(), file, trust_, kMaxEntryBytes);
  if (read.state != ReadFile::State::ok) return {read.state, {}, read.info, std::move(read.why)};
  Result<Entry> entry = decode_entry(std::move(read.bytes), name);
  if (!entry) return {ReadFile::State::refused, {}, read.info, entry.error().message};
  // decode_entry lets any builder pass for an empty one; a file says exactly which it is.
  if (entry->builder != name.builder)
    return {ReadFile::State::refused,
            {},
            read.info,
            fmt::format("made by '{}' under another name", entry->builder)};
  return {ReadFile::State::ok, std::move(*entry), read.info, {}};
}

bool DiskRoot::remove(const EntryFile& file) const {
  const OpenedDir dir = shard(file.shard, false);
  return dir.fd && unlink_if_same(dir.fd.get(), file.file, file.info);
}

}  // namespace w4moe::cache
