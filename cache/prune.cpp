#include "cache/prune.hpp"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <limits>

namespace w4moe::cache {
namespace {

namespace stdfs = std::filesystem;

constexpr std::int64_t kStaleTempS = 3600;
// A time stamp further ahead than this comes from a clock that was wrong.
constexpr std::int64_t kClockSlackS = 3600;

// Seconds since the last use. What was used "in the future" has not been used since the clock was put right, or its
// time would have been corrected: it is the oldest of all, not the youngest for years.
std::int64_t age_s(const struct stat& info, std::int64_t now_s) {
  const std::int64_t age = now_s - static_cast<std::int64_t>(info.st_mtim.tv_sec);
  return age < -kClockSlackS ? std::numeric_limits<std::int64_t>::max() : std::max<std::int64_t>(age, 0);
}

struct Candidate {
  EntryFile file;
  std::int64_t age;
  std::string reason;  // empty = stays

  std::uint64_t bytes() const { return static_cast<std::uint64_t>(file.info.st_size); }
};

// "corrupt" or "other-version", or empty for an entry of this version.
std::string version_reason(const DiskRoot& root, const EntryFile& file, const std::vector<KeyField>& current) {
  const DiskRoot::ReadEntry read = root.read(file.shard, file.file, file.name);
  if (read.state == ReadFile::State::refused) return "corrupt";
  if (!read.entry) return {};
  const auto fields = parse_key_text(read.entry->key_text);
  if (!fields) return "other-version";
  for (const KeyField& wanted : current)
    if (std::find(fields->begin(), fields->end(), wanted) == fields->end()) return "other-version";
  return {};
}

std::vector<Candidate> choose(const DiskRoot& root, const PruneOptions& options, std::int64_t now_s) {
  std::vector<Candidate> all;
  for (EntryFile& file : root.scan()) {
    const std::int64_t age = age_s(file.info, now_s);
    all.push_back({std::move(file), age, {}});
  }
  std::uint64_t total = 0;
  for (Candidate& c : all) {
    if (options.max_age_s && c.age > *options.max_age_s) c.reason = "max-age";
    if (c.reason.empty() && !options.current.empty()) c.reason = version_reason(root, c.file, options.current);
    if (c.reason.empty()) total += c.bytes();
  }
  if (!options.max_bytes) return all;
  // Oldest first; to the nanosecond, and by name, so that a dry run and the real run agree.
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.age != b.age) return a.age > b.age;
    const auto na = a.file.info.st_mtim.tv_nsec, nb = b.file.info.st_mtim.tv_nsec;
    return na != nb ? na < nb : a.file.name < b.file.name;
  });
  for (Candidate& c : all) {
    if (total <= *options.max_bytes) break;
    if (!c.reason.empty() || c.age < options.keep_younger_s) continue;
    c.reason = "max-size";
    total -= c.bytes();
  }
  return all;
}

void add(PruneReport& report, PrunedItem item) {
  report.removed_bytes += item.bytes;
  report.removed.push_back(std::move(item));
}

void sweep_temp_files(const DiskRoot& root, bool dry_run, std::int64_t now_s, PruneReport& report) {
  if (root.tmp() < 0) return;
  for (const std::string& name : names_in(root.tmp())) {
    struct stat info;
    if (::fstatat(root.tmp(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        age_s(info, now_s) < kStaleTempS)
      continue;
    if (dry_run || unlink_if_same(root.tmp(), name, info))
      add(report, {"v1/tmp/" + name, static_cast<std::uint64_t>(info.st_size), "stale-temp"});
  }
}

bool is_other_schema(const std::string& name) {
  int version = 0;
  const char* const end = name.data() + name.size();
  return name.size() >= 2 && name[0] == 'v' && name != "v1" && name[1] != '0' &&
         std::from_chars(name.data() + 1, end, version).ptr == end && version > 0;
}

void drop_other_schemas(const DiskRoot& root, const stdfs::path& root_path, bool dry_run, PruneReport& report) {
  for (const std::string& name : names_in(root.base())) {
    struct stat info;
    if (!is_other_schema(name) || ::fstatat(root.base(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (!S_ISDIR(info.st_mode)) continue;
    std::error_code error;
    std::uint64_t bytes = 0;
    for (const auto& item : stdfs::recursive_directory_iterator(root_path / name, error)) {
      std::error_code ignored;
      if (item.is_regular_file(ignored) && !item.is_symlink(ignored)) bytes += item.file_size(ignored);
    }
    if (!dry_run) stdfs::remove_all(root_path / name, error);  // does not follow links
    if (!error) add(report, {name, bytes, "other-schema"});
  }
}

}  // namespace

PruneReport prune(const DiskRoot& root, const std::string& root_path, const PruneOptions& options) {
  PruneReport report;
  const std::int64_t now_s = std::time(nullptr);
  for (Candidate& c : choose(root, options, now_s)) {
    if (!c.reason.empty() && (options.dry_run || root.remove(c.file))) {
      add(report, {c.file.path(), c.bytes(), std::move(c.reason)});
    } else {
      report.kept_bytes += c.bytes();
      ++report.kept_entries;
    }
  }
  sweep_temp_files(root, options.dry_run, now_s, report);
  if (options.other_schemas) drop_other_schemas(root, root_path, options.dry_run, report);
  return report;
}

}  // namespace w4moe::cache
