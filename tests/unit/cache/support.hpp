// Shared by the tests of the cache: a directory that goes away, sample entries, children to fork.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "cache/disk_store.hpp"

namespace w4moe::cache::test {

namespace fs = std::filesystem;

class TempDir {
 public:
  TempDir() {
    std::string name = (fs::temp_directory_path() / "w4moe-cache-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Collects warnings.
class Warnings {
 public:
  WarningFn fn() {
    return [this](const std::string& text) {
      const std::lock_guard guard(mutex_);
      texts_.push_back(text);
    };
  }
  std::size_t count() const { return texts_.size(); }
  bool mention(const std::string& part) const {
    for (const std::string& text : texts_)
      if (text.find(part) != std::string::npos) return true;
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

inline std::string key_text(const std::string& id) { return KeyBuilder().field("id", id).text(); }
inline EntryName name_of(const std::string& id, const std::string& builder = "12.4.131") {
  return {Key::of_text(key_text(id)), builder};
}

/// An entry whose payload follows from its id.
inline Entry sample(const std::string& id, std::size_t payload_bytes = 1000,
                    const std::string& builder = "12.4.131") {
  std::string payload;
  while (payload.size() < payload_bytes) payload += "kernel " + id + "\n";
  payload.resize(payload_bytes);
  return make_entry(payload.data(), payload.size(), key_text(id), builder, "{\"id\":\"" + id + "\"}");
}

inline bool same(const std::optional<Entry>& a, const Entry& b) {
  return a && *a->payload == *b.payload && a->key_text == b.key_text && a->builder == b.builder &&
         a->metadata == b.metadata;
}

inline std::string entry_path(const std::string& root, const EntryName& name) {
  return root + "/v1/obj/" + DiskRoot::shard_name(name.key) + "/" + DiskRoot::file_name(name);
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// Sets the time of the last use to `age_s` seconds ago; a negative age is in the future.
inline void set_age(const std::string& path, std::int64_t age_s) {
  struct timespec times[2] = {};
  times[0].tv_sec = times[1].tv_sec = std::time(nullptr) - age_s;
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);
}
inline std::int64_t age_of(const std::string& path) {
  struct stat info {};
  ::stat(path.c_str(), &info);
  return std::time(nullptr) - info.st_mtim.tv_sec;
}

inline mode_t mode_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

/// Every file below `root`, relative, without lock files.
inline std::vector<std::string> files_below(const std::string& root) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& item : fs::recursive_directory_iterator(root, ignored))
    if (!item.is_directory() && item.path().parent_path().filename() != "lock")
      out.push_back(fs::relative(item.path(), root).string());
  return out;
}

/// Runs `body` in a child, which ends with its result (99 if it throws). No Catch macros in there.
template <class Body>
pid_t spawn(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int rc = 99;
    try {
      rc = body();
    } catch (...) {
    }
    ::_exit(rc);
  }
  return pid;
}

/// The exit status of a child, or 128 + the signal that ended it.
inline int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

template <class Body>
int in_child(Body&& body) {
  return wait_for(spawn(body));
}

/// In a child: gives root's powers up, which read-only modes do not bind.
inline bool become_nobody() { return ::geteuid() != 0 || (::setgid(12345) == 0 && ::setuid(12345) == 0); }

/// In a child: a 256 KiB file system at `target`, seen by this process only. False where that is not allowed.
inline bool mount_tmpfs(const std::string& target) {
  const uid_t uid = ::geteuid(), gid = ::getegid();
  if (::unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return false;
  if (uid != 0) {  // a user namespace of our own, in which we are who we were
    const auto map = [](uid_t id) { return std::to_string(id) + " " + std::to_string(id) + " 1"; };
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", map(uid));
    write_text("/proc/self/gid_map", map(gid));
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", target.c_str(), "tmpfs", 0, "size=256k,mode=0700") == 0;
}
inline bool remount_read_only(const std::string& target) {
  return ::mount("tmpfs", target.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=256k") == 0;
}

/// Counts events across processes: one byte each.
class FileCounter {
 public:
  explicit FileCounter(std::string path) : path_(std::move(path)) {}
  void add() const {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    [[maybe_unused]] const ssize_t n = ::write(fd, "x", 1);
    ::close(fd);
  }
  std::size_t count() const { return read_text(path_).size(); }

 private:
  std::string path_;
};

}  // namespace w4moe::cache::test
