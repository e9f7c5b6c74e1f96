#include "cache/disk_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "cache/prune.hpp"

namespace w4moe::cache {
namespace {

constexpr std::int64_t kTouchAfterS = 3600;    // at most one metadata write an hour and entry
constexpr std::int64_t kEvictKeepsS = 600;     // what a running build has just made is not evicted by it
constexpr std::uint64_t kEvictToPercent = 80;  // so that eviction is rare
constexpr off_t kWholeLock = 0;

// Recency, correct to an hour. A time ahead of the clock is put right as well.
void touch(int dir, const std::string& file, const struct stat& info) {
  const std::int64_t age =
      static_cast<std::int64_t>(std::time(nullptr)) - static_cast<std::int64_t>(info.st_mtim.tv_sec);
  if (std::llabs(age) < kTouchAfterS) return;
  ::utimensat(dir, file.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // "now" needs no ownership, only write access
}

Error io_error(std::string message) { return Error{ErrorCode::io, std::move(message)}; }

}  // namespace

DiskStore::DiskStore(DiskOptions options, std::shared_ptr<SharedStats> stats)
    : options_(std::move(options)), stats_(std::move(stats)), warner_(options_.warn) {}

void DiskStore::warn(const std::string& kind, const std::string& what) {
  const char* const hint = options_.read_only
                               ? "check W4MOE_CACHE_READONLY_DIRS"
                               : "set W4MOE_CACHE_DIR to a private, writable directory to move it";
  warner_.once(kind, fmt::format("kernel cache {}: {}; {}", options_.root, what, hint));
}

DiskRoot::Opened DiskStore::open_root(bool create) {
  const std::lock_guard guard(mutex_);
  // A tree that was opened to read, while it was being made, may lack a part.
  if (root_ && (!create || options_.read_only || root_->writable())) return {root_, 0, {}};
  DiskRoot::Opened opened = DiskRoot::open(options_, create);
  root_ = opened.root;
  return opened;
}

Result<std::shared_ptr<const DiskRoot>> DiskStore::root() {
  DiskRoot::Opened opened = open_root(false);
  if (!opened.root) return io_error(fmt::format("kernel cache {}: {}", options_.root, opened.why));
  return std::move(opened.root);
}

void DiskStore::forget_root() {
  const std::lock_guard guard(mutex_);
  root_ = nullptr;
}

std::shared_ptr<const DiskRoot> DiskStore::readable_root() {
  DiskRoot::Opened opened = open_root(false);
  // The user's directory need not exist before the first put; one that was given to read from should.
  if (!opened.root && (opened.error != ENOENT || options_.read_only))
    warn("root", opened.why + "; it is not used");
  return std::move(opened.root);
}

std::optional<Entry> DiskStore::get(const EntryName& name) {
  const auto root = readable_root();
  if (!root || !valid_builder(name.builder)) return std::nullopt;
  if (name.builder.empty()) {
    for (const EntryFile& file : root->files_of(name.key))
      if (auto entry = get_file(*root, file)) return entry;
    return std::nullopt;
  }
  return get_file(*root, EntryFile{DiskRoot::shard_name(name.key), DiskRoot::file_name(name), name});
}

std::optional<Entry> DiskStore::get_file(const DiskRoot& root, const EntryFile& file) {
  DiskRoot::ReadEntry read = root.read(file.shard, file.file, file.name);
  const std::string path = file.path();
  switch (read.state) {
    case ReadFile::State::ok:
      if (!options_.read_only)
        if (const OpenedDir dir = root.shard(file.shard, false); dir.fd)
          touch(dir.fd.get(), file.file, read.info);
      return std::move(read.entry);
    case ReadFile::State::absent:
      break;
    case ReadFile::State::failed:
      warn("read", fmt::format("cannot read {}: {}", path, read.why));
      break;
    case ReadFile::State::refused:
      stats_->add(&Stats::corrupt);
      EntryFile seen = file;
      seen.info = read.info;
      const bool removed = !options_.read_only && root.remove(seen);
      warn("corrupt", fmt::format("{} is not used: {}{}", path, read.why, removed ? "; removed" : ""));
      break;
  }
  return std::nullopt;
}

int DiskStore::try_publish(const Entry& entry, const Bytes& file, std::string& why) {
  DiskRoot::Opened opened = open_root(true);
  if (!opened.root) {
    why = std::move(opened.why);
    return opened.error;
  }
  const DiskRoot& root = *opened.root;
  const EntryName name = entry.name();
  const OpenedDir shard = root.shard(DiskRoot::shard_name(name.key), true);
  int error = shard.fd ? 0 : shard.error;
  if (error == 0 && root.tmp() < 0) error = EACCES;
  if (error == 0)
    error = publish_file(root.tmp(), shard.fd.get(), DiskRoot::file_name(name), file, root.file_mode(),
                         options_.publish_hook);
  if (error != 0)
    why = fmt::format("cannot write kernel {}: {}", name.key.short_hex(),
                      shard.fd ? errno_text(error) : shard.why);
  return error;
}

Status DiskStore::publish(const Entry& entry) {
  if (options_.read_only) return io_error(fmt::format("kernel cache {} is read only", options_.root));
  const Result<Bytes> file = encode_entry(entry);
  if (!file) return file.error();
  std::string why;
  int error = try_publish(entry, *file, why);
  if (error == ENOENT) {  // somebody removed the tree while we held it open
    forget_root();
    error = try_publish(entry, *file, why);
  }
  if (error != 0) return io_error(std::move(why));
  stats_->add(&Stats::put);
  if (const auto opened = open_root(false).root) limit_size(*opened, file->size());
  return {};
}

void DiskStore::put(const Entry& entry) {
  if (options_.read_only) return;
  const Status done = publish(entry);
  if (done) return;
  stats_->add(&Stats::put_failed);
  // The same kind as an unusable root: one warning tells all there is to do.
  warn("root", done.error().message + "; kernels are compiled anew in each process");
}

void DiskStore::limit_size(const DiskRoot& root, std::uint64_t added_bytes) {
  if (options_.max_bytes == 0 || root.lock() < 0) return;
  {
    // Other processes put as well, so the directory is measured, but not at every put.
    const std::lock_guard guard(mutex_);
    if (scanned_ && added_bytes < bytes_to_scan_) {
      bytes_to_scan_ -= added_bytes;
      return;
    }
    scanned_ = true;
    bytes_to_scan_ = options_.max_bytes / 64;
  }
  std::uint64_t total = 0;
  for (const EntryFile& file : root.scan()) total += static_cast<std::uint64_t>(file.info.st_size);
  if (total <= options_.max_bytes) return;
  RangeLock lock;
  UniqueFd fd = open_lock_file(root.lock(), "evict", root.file_mode());
  if (fd && lock.try_lock(fd, kWholeLock) == EAGAIN) return;  // somebody is at it
  PruneOptions limits;
  limits.max_bytes = options_.max_bytes / 100 * kEvictToPercent;
  limits.keep_younger_s = kEvictKeepsS;
  stats_->add(&Stats::evicted, prune(root, options_.root, limits).removed.size());
}

std::vector<StoredEntry> DiskStore::list() {
  std::vector<StoredEntry> out;
  if (const auto root = readable_root())
    for (const EntryFile& file : root->scan())
      out.push_back(
          {file.name, static_cast<std::uint64_t>(file.info.st_size), file.info.st_mtim.tv_sec, file.path()});
  return out;
}

bool DiskStore::remove(const EntryName& name) {
  if (options_.read_only) return false;
  const auto root = readable_root();
  if (!root) return false;
  for (const EntryFile& file : root->files_of(name.key))
    if (file.name.builder == name.builder) return root->remove(file);
  return false;
}

BuildLock DiskStore::lock_for_build(const Key& key, const LockWait& wait) {
  if (options_.read_only) return {};
  const auto opened = open_root(true).root;
  if (!opened || opened->lock() < 0) return {};
  BuildLock lock = cache::lock_for_build(opened->lock(), key, opened->file_mode(), wait);
  stats_->add(&Stats::lock_wait_ms, static_cast<std::uint64_t>(lock.waited().count()));
  return lock;
}

RangeLock DiskStore::take_place(int slots, const LockWait& wait) {
  if (options_.read_only) return {};
  const auto opened = open_root(true).root;
  if (!opened || opened->lock() < 0) return {};
  const auto start = std::chrono::steady_clock::now();
  RangeLock place = cache::take_place(opened->lock(), slots, opened->file_mode(), wait);
  const auto waited = std::chrono::steady_clock::now() - start;
  stats_->add(&Stats::lock_wait_ms,
              static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()));
  return place;
}

Stats read_total_stats(DiskStore& store) {
  const auto root = store.root();
  if (!root || (*root)->stats() < 0) return {};
  const ReadFile file = read_trusted_file((*root)->stats(), "totals.json", (*root)->trust(), 65536);
  return stats_from_json({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
}

bool merge_stats(DiskStore& store, const Stats& unsaved) {
  const auto opened = store.root();
  if (!opened || (*opened)->stats() < 0 || (*opened)->tmp() < 0 || (*opened)->lock() < 0) return false;
  const DiskRoot& root = **opened;
  UniqueFd fd = open_lock_file(root.lock(), "stats", root.file_mode());
  RangeLock lock;
  for (int tries = 0; fd && lock.try_lock(fd, kWholeLock) == EAGAIN && tries < 200; ++tries) ::usleep(5000);
  if (!lock.held()) return false;
  Stats total = read_total_stats(store);
  const std::string json = stats_to_json(total += unsaved);
  return publish_file(root.tmp(), root.stats(), "totals.json", std::as_bytes(std::span(json)),
                      root.file_mode()) == 0;
}

}  // namespace w4moe::cache
