// Locks across processes, taken so that work is not done twice. Nothing is wrong without them: a lock that cannot be
// had (ENOLCK, read-only file system, time limit) is done without.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "cache/fs.hpp"
#include "cache/key.hpp"

namespace w4moe::cache {

/// An open-file-description lock on one byte of a file. The kernel drops it when its process dies, so none is stale.
class RangeLock {
 public:
  RangeLock() = default;
  RangeLock(RangeLock&&) = default;
  RangeLock& operator=(RangeLock&& other) noexcept;
  ~RangeLock() { release(); }

  /// Tries once; takes the descriptor over. Returns 0, EAGAIN if somebody has it, or another errno.
  int try_lock(UniqueFd& fd, off_t byte);
  /// Unlocks explicitly: a forked child would otherwise keep the lock through its copy of the descriptor.
  void release();
  bool held() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  off_t byte_ = 0;
};

struct LockWait {
  std::chrono::milliseconds limit = std::chrono::seconds(120);     ///< then go on without
  std::chrono::milliseconds warn_after = std::chrono::seconds(5);  ///< then say who is waited for
  std::function<void(const std::string&)> warn;
};

/// The lock that the builder of one key holds.
class BuildLock {
 public:
  BuildLock() = default;
  BuildLock(BuildLock&&) = default;
  ~BuildLock();

  bool held() const { return lock_.held(); }
  std::chrono::milliseconds waited() const { return waited_; }

 private:
  friend BuildLock lock_for_build(int lock_dir, const Key& key, mode_t mode, const LockWait& wait);
  RangeLock lock_;
  off_t note_at_ = 0;
  std::chrono::milliseconds waited_{0};
};

/// Waits for the lock of `key` in `lock_dir`/<first byte of the key>. Each key has its own byte there, so that two
/// keys never wait for each other. A lock that is not held afterwards could not be had.
BuildLock lock_for_build(int lock_dir, const Key& key, mode_t mode, const LockWait& wait);

/// One of `slots` places that the processes of this machine share, so that many of them do not compile more at a time than
/// the machine bears. Waits up to wait.limit, silently. A lock that is not held afterwards could not be had: go on without.
RangeLock take_place(int lock_dir, int slots, mode_t mode, const LockWait& wait);

/// Opens a lock file, made if missing and never removed. On failure the descriptor is empty and errno set.
UniqueFd open_lock_file(int dir, const char* name, mode_t mode);

}  // namespace w4moe::cache
