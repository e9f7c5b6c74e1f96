#include "cache/fs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <memory>
#include <system_error>

namespace w4moe::cache {
namespace {

constexpr std::string_view kShareHint = " (W4MOE_CACHE_SHARED=1 trusts it)";
constexpr int kMaxLinks = 40;  // as the kernel's own limit

// Adds the parts of `path` in front of `rest`.
void prepend_parts(std::string_view path, std::deque<std::string>& rest) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    if (slash > 0 && path.substr(0, slash) != ".") parts.emplace_back(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  rest.insert(rest.begin(), parts.begin(), parts.end());
}

// The mode is set again after mkdir, which takes the umask off; a directory that is already there keeps its own.
int make_dir(int parent, const char* name, mode_t mode, bool& created) {
  if (::mkdirat(parent, name, 0700) != 0) return errno == EEXIST ? 0 : errno;
  created = true;
  return mode == 0700 || ::fchmodat(parent, name, mode, 0) == 0 ? 0 : errno;
}

UniqueFd open_path(int dir, const char* name) {
  return UniqueFd(::openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

OpenedDir failed(int error, std::string why) { return {UniqueFd(), error, std::move(why), false}; }

std::string link_target(int link) {
  char target[PATH_MAX];
  const ssize_t n = ::readlinkat(link, "", target, sizeof target);
  return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : std::string();
}

// A name nobody can guess or meet by accident; the pid is for people.
std::string temp_name() {
  std::uint64_t random[2] = {};
  if (::getrandom(random, sizeof random, 0) != sizeof random)
    random[0] = reinterpret_cast<std::uintptr_t>(&random);
  return fmt::format("{}.{}.{:016x}{:016x}", ::getpid(), ::gettid(), random[0], random[1]);
}

int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

// What publish_file does to the open temporary file.
int fill_temp(int fd, std::span<const std::byte> bytes, mode_t mode, const PublishHook& hook) {
  const auto after = [&](int error, PublishStep step) { return error != 0 || !hook ? error : hook(step); };
  const std::size_t half = bytes.size() / 2;
  if (int e = after(0, PublishStep::temp_created)) return e;
  if (int e = after(write_all(fd, bytes.first(half)), PublishStep::half_written)) return e;
  if (int e = after(write_all(fd, bytes.subspan(half)), PublishStep::written)) return e;
  if (int e = after(::fsync(fd) == 0 ? 0 : errno, PublishStep::synced)) return e;
  return after(::fchmod(fd, mode) == 0 ? 0 : errno, PublishStep::ready);
}

ReadFile read_once(int dir, const std::string& name, const Trust& trust, std::uint64_t max_bytes, int& error) {
  ReadFile out;
  const auto with = [&](ReadFile::State state, std::string why) {
    out.state = state;
    out.why = std::move(why);
    return std::move(out);
  };
  // O_NONBLOCK: a planted FIFO must not stop us.
  const UniqueFd fd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    error = errno;
    if (error == ENOENT) return out;
    if (error == ELOOP && ::fstatat(dir, name.c_str(), &out.info, AT_SYMLINK_NOFOLLOW) == 0)
      return with(ReadFile::State::refused, "is a symbolic link");
    return with(ReadFile::State::failed, errno_text(error));
  }
  if (::fstat(fd.get(), &out.info) != 0) {
    error = errno;
    return with(ReadFile::State::failed, errno_text(error));
  }
  if (!S_ISREG(out.info.st_mode)) return with(ReadFile::State::refused, "is not a regular file");
  if (std::string why = distrust(out.info, trust); !why.empty())
    return with(ReadFile::State::refused, std::move(why));
  const auto size = static_cast<std::uint64_t>(out.info.st_size);
  if (size > max_bytes)
    return with(ReadFile::State::refused, fmt::format("{} bytes, at most {}", size, max_bytes));
  out.bytes.resize(static_cast<std::size_t>(size));
  for (std::size_t done = 0; done < out.bytes.size();) {
    const ssize_t n = ::read(fd.get(), out.bytes.data() + done, out.bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      error = errno;
      return with(ReadFile::State::failed, errno_text(error));
    }
    if (n == 0) return with(ReadFile::State::refused, "shrank while it was read");
    done += static_cast<std::size_t>(n);
  }
  out.state = ReadFile::State::ok;
  return out;
}

}  // namespace

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string distrust(const struct stat& info, const Trust& trust, bool sticky_is_enough) {
  if (trust.shared) return {};
  if (info.st_uid != 0 && info.st_uid != trust.euid)
    return fmt::format("is owned by uid {}, neither root nor this user ({}){}", info.st_uid, trust.euid,
                       kShareHint);
  if ((info.st_mode & 022) != 0 && !(sticky_is_enough && (info.st_mode & S_ISVTX) != 0))
    return fmt::format("has mode {:04o}, so that others can write to it{}", info.st_mode & 07777, kShareHint);
  return {};
}

OpenedDir open_trusted_subdir(int parent, const char* name, const Trust& trust,
                              std::optional<mode_t> create_mode) {
  bool created = false;
  UniqueFd fd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT && create_mode) {
    if (const int e = make_dir(parent, name, *create_mode, created)) return failed(e, errno_text(e));
    fd = UniqueFd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  struct stat info;
  if (!fd || ::fstat(fd.get(), &info) != 0) {
    const int e = errno;
    return failed(e, fmt::format("'{}': {}", name, errno_text(e)));
  }
  if (const std::string why = distrust(info, trust); !why.empty())
    return failed(EPERM, fmt::format("'{}' {}", name, why));
  return {std::move(fd), 0, {}, created};
}

OpenedDir open_trusted_dir(const std::string& path, const Trust& trust, std::optional<mode_t> create_mode) {
  std::deque<std::string> rest;
  prepend_parts(path, rest);
  UniqueFd dir = open_path(AT_FDCWD, "/");
  std::string walked;
  bool created = false;
  for (int links = 0; !rest.empty();) {
    const std::string name = std::move(rest.front());
    rest.pop_front();
    walked += "/" + name;
    UniqueFd next = open_path(dir.get(), name.c_str());
    if (!next && errno == ENOENT && create_mode) {
      if (const int e = make_dir(dir.get(), name.c_str(), *create_mode, created))
        return failed(e, fmt::format("cannot make {}: {}", walked, errno_text(e)));
      next = open_path(dir.get(), name.c_str());
    }
    struct stat info;
    if (!next || ::fstat(next.get(), &info) != 0) {
      const int e = errno;
      return failed(e, fmt::format("{}: {}", walked, errno_text(e)));
    }
    if (S_ISLNK(info.st_mode)) {
      const std::string target = link_target(next.get());
      if (rest.empty())
        return failed(EPERM, fmt::format("{} is a symbolic link to {}; name that instead", walked, target));
      if (!trust.shared && info.st_uid != 0 && info.st_uid != trust.euid)
        return failed(EPERM, fmt::format("{} is a symbolic link of uid {}", walked, info.st_uid));
      if (target.empty() || ++links > kMaxLinks)
        return failed(ELOOP, fmt::format("{}: {}", walked, errno_text(ELOOP)));
      prepend_parts(target, rest);
      if (target.front() == '/') dir = open_path(AT_FDCWD, "/");
      continue;
    }
    if (!S_ISDIR(info.st_mode)) return failed(ENOTDIR, fmt::format("{}: {}", walked, errno_text(ENOTDIR)));
    if (const std::string why = distrust(info, trust, /*sticky_is_enough=*/!rest.empty()); !why.empty())
      return failed(EPERM, fmt::format("{} {}", walked, why));
    dir = std::move(next);
  }
  UniqueFd fd(::openat(dir.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    const int e = errno;
    return failed(e, fmt::format("{}: {}", path, errno_text(e)));
  }
  return {std::move(fd), 0, {}, created};
}

ReadFile read_trusted_file(int dir, const std::string& name, const Trust& trust, std::uint64_t max_bytes) {
  int error = 0;
  ReadFile file = read_once(dir, name, trust, max_bytes, error);
  if (error == ESTALE) file = read_once(dir, name, trust, max_bytes, error);
  return file;
}

bool unlink_if_same(int dir, const std::string& name, const struct stat& seen) {
  struct stat now;
  if (::fstatat(dir, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0) return false;
  const bool same = now.st_dev == seen.st_dev && now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
                    now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
  return same && ::unlinkat(dir, name.c_str(), 0) == 0;
}

int publish_file(int tmp_dir, int dir, const std::string& name, std::span<const std::byte> bytes, mode_t mode,
                 const PublishHook& hook) {
  const std::string temp = temp_name();
  int error = 0;
  {
    const UniqueFd fd(
        ::openat(tmp_dir, temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return errno;
    error = fill_temp(fd.get(), bytes, mode, hook);
  }
  if (error == 0 && ::renameat(tmp_dir, temp.c_str(), dir, name.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlinkat(tmp_dir, temp.c_str(), 0);
    return error;
  }
  // The directory is not synced: a lost rename costs a compile.
  return hook ? hook(PublishStep::renamed) : 0;
}

std::vector<std::string> names_in(int dir) {
  std::vector<std::string> names;
  const int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // an own read position
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(copy >= 0 ? ::fdopendir(copy) : nullptr, ::closedir);
  if (!stream) {
    if (copy >= 0) ::close(copy);
    return names;
  }
  while (const dirent* item = ::readdir(stream.get())) {
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace w4moe::cache
