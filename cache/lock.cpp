#include "cache/lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace w4moe::cache {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Who holds a key's lock is noted in the lock file, since F_OFD_GETLK does not know: a slot by the key's second byte.
constexpr std::size_t kNoteBytes = 128;
// Lock bytes lie behind all notes.
constexpr off_t kFirstLockByte = off_t{1} << 32;

off_t lock_byte(const Key& key) {
  std::uint64_t bits = 0;
  for (std::size_t i = 1; i < 8; ++i) bits = bits << 8 | key.bytes[i];
  return kFirstLockByte + static_cast<off_t>(bits);
}

struct flock range(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

std::string host_name() {
  char name[65] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

void write_note(int fd, off_t at, const Key& key) {
  std::string note = fmt::format("{} pid {} on {:.64}", key.short_hex(), ::getpid(), host_name());
  note.resize(kNoteBytes - 1, ' ');
  note += '\n';
  [[maybe_unused]] const ssize_t n = ::pwrite(fd, note.data(), note.size(), at);  // only a courtesy
}

std::string read_note(int fd, off_t at, const Key& key) {
  char text[kNoteBytes] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, at);
  std::string_view note(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  if (!note.starts_with(key.short_hex() + " pid ")) return "another process";
  note.remove_prefix(13);
  return std::string(note.substr(0, note.find_last_not_of(" \n") + 1));
}

}  // namespace

RangeLock& RangeLock::operator=(RangeLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(byte_, other.byte_);
  return *this;
}

int RangeLock::try_lock(UniqueFd& fd, off_t byte) {
  struct flock lock = range(F_WRLCK, byte);
  if (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) return errno == EACCES ? EAGAIN : errno;
  release();
  fd_ = std::move(fd);
  byte_ = byte;
  return 0;
}

void RangeLock::release() {
  if (!fd_) return;
  struct flock lock = range(F_UNLCK, byte_);
  ::fcntl(fd_.get(), F_OFD_SETLK, &lock);
  fd_ = UniqueFd();
}

BuildLock::~BuildLock() {
  if (!lock_.held()) return;
  const std::string blank(kNoteBytes, ' ');
  [[maybe_unused]] const ssize_t n = ::pwrite(lock_.fd(), blank.data(), blank.size(), note_at_);
}

RangeLock take_place(int lock_dir, int slots, mode_t mode, const LockWait& wait) {
  RangeLock out;
  if (slots < 1) return out;
  // A directory may be shared by machines (NFS), the places are not: a name by host, of a bounded number of names.
  std::uint32_t host = 2166136261U;
  for (const char c : host_name()) host = (host ^ static_cast<unsigned char>(c)) * 16777619U;
  UniqueFd fd = open_lock_file(lock_dir, fmt::format("host-{:02x}", host >> 24).c_str(), mode);
  if (!fd) return out;
  const Clock::time_point start = Clock::now();
  milliseconds pause(1);
  while (true) {
    for (int i = 0; i < slots; ++i) {
      const int error = out.try_lock(fd, i);
      if (error == 0) return out;
      if (error != EAGAIN && error != EINTR) return out;
    }
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    if (waited >= wait.limit) return out;
    std::this_thread::sleep_for(std::min(pause, wait.limit - waited));
    pause = std::min(pause * 2, milliseconds(50));
  }
}

UniqueFd open_lock_file(int dir, const char* name, mode_t mode) {
  UniqueFd fd(::openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd || errno != ENOENT) return fd;
  fd = UniqueFd(::openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode));
  if (fd) ::fchmod(fd.get(), mode);  // past the umask; fails harmlessly if another user was first
  return fd;
}

BuildLock lock_for_build(int lock_dir, const Key& key, mode_t mode, const LockWait& wait) {
  BuildLock out;
  UniqueFd fd = open_lock_file(lock_dir, key.hex().substr(0, 2).c_str(), mode);
  if (!fd) return out;
  out.note_at_ = static_cast<off_t>(key.bytes[1] * kNoteBytes);
  const Clock::time_point start = Clock::now();
  bool warned = false;
  milliseconds pause(1);
  while (true) {
    const int error = out.lock_.try_lock(fd, lock_byte(key));
    out.waited_ = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    if (error == 0) {
      write_note(out.lock_.fd(), out.note_at_, key);
      return out;
    }
    if (error != EAGAIN && error != EINTR) return out;
    if (!warned && out.waited_ >= wait.warn_after && wait.warn) {
      warned = true;
      wait.warn(fmt::format("waiting for {} to build kernel {} ({:.1f} s so far, limit {:.0f} s)",
                            read_note(fd.get(), out.note_at_, key), key.short_hex(),
                            static_cast<double>(out.waited_.count()) / 1e3,
                            static_cast<double>(wait.limit.count()) / 1e3));
    }
    if (out.waited_ >= wait.limit) return out;
    std::this_thread::sleep_for(std::min(pause, wait.limit - out.waited_));
    pause = std::min(pause * 2, milliseconds(50));  // 50 ms is little beside a compile of 0.4 s and more
  }
}

}  // namespace w4moe::cache
