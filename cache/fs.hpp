// The file system as the cache needs it: directories that can be trusted, reads that cannot be fooled, atomic publish.
// Everything works relative to held directory descriptors, so that a path swapped later does not lead elsewhere.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cache/entry.hpp"

namespace w4moe::cache {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Whose files are trusted. Loading a kernel is running code.
struct Trust {
  uid_t euid = ::geteuid();
  bool shared = false;  ///< W4MOE_CACHE_SHARED=1: any owner, any mode; symbolic links stay refused
};

/// "Permission denied"
std::string errno_text(int error);

/// Why a file or directory with these attributes is not trusted; empty if it is. `sticky_is_enough`: others may write
/// to a directory that keeps them from renaming what is not theirs (/tmp), good enough for a parent.
std::string distrust(const struct stat& info, const Trust& trust, bool sticky_is_enough = false);

/// A directory, or the reason why not. `error` is an errno: ENOENT if absent, EPERM if refused.
struct OpenedDir {
  UniqueFd fd;
  int error = 0;
  std::string why;
  bool created = false;
};

/// Opens an absolute path part by part: every directory on the way must be trusted, symbolic links on the way must
/// belong to this user or root, and the last part must not be one. With `create_mode`, missing parts are made.
OpenedDir open_trusted_dir(const std::string& path, const Trust& trust, std::optional<mode_t> create_mode);

/// The same for one directory below an open one.
OpenedDir open_trusted_subdir(int parent, const char* name, const Trust& trust,
                              std::optional<mode_t> create_mode);

struct ReadFile {
  enum class State {
    ok,
    absent,
    refused,  ///< there is something that must not be used: `info` tells it apart for unlink_if_same
    failed,   ///< unreadable, perhaps only now or only for us
  };
  State state = State::absent;
  Bytes bytes;
  struct stat info {};
  std::string why;
};

/// Reads a whole regular, trusted file; never follows a link, never blocks on a FIFO. Retries ESTALE (NFS) once.
ReadFile read_trusted_file(int dir, const std::string& name, const Trust& trust, std::uint64_t max_bytes);

/// Removes a file if it is still the one described by `seen`. True if it is gone by our doing.
bool unlink_if_same(int dir, const std::string& name, const struct stat& seen);

/// The steps of a publish, each reported after it was done.
enum class PublishStep { temp_created, half_written, written, synced, ready, renamed };

/// For tests: called after each step; a non-zero result makes the step fail with that errno. A test may also end the
/// process here.
using PublishHook = std::function<int(PublishStep)>;

/// Writes a temporary file in `tmp_dir`, syncs it and renames it to `dir`/`name`. Returns 0 or an errno; after an
/// error nothing is left behind. Readers see the old file or the whole new one.
int publish_file(int tmp_dir, int dir, const std::string& name, std::span<const std::byte> bytes, mode_t mode,
                 const PublishHook& hook = {});

/// The names in a directory except "." and "..", sorted.
std::vector<std::string> names_in(int dir);

}  // namespace w4moe::cache
