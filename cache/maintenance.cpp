#include "cache/maintenance.hpp"

#include <fmt/format.h>

namespace w4moe::cache {

Result<VerifyReport> verify(DiskStore& store, bool remove_damaged) {
  const auto root = store.root();
  if (!root) return root.error();
  VerifyReport report;
  for (EntryFile& file : (*root)->scan()) {
    DiskRoot::ReadEntry read = (*root)->read(file.shard, file.file, file.name);
    if (read.state == ReadFile::State::absent) continue;  // removed since the scan
    ++report.checked;
    report.bytes += static_cast<std::uint64_t>(file.info.st_size);
    if (read.state == ReadFile::State::ok) continue;
    file.info = read.info;
    const bool remove = remove_damaged && !store.options().read_only && read.state == ReadFile::State::refused;
    report.damaged.push_back({file.path(), std::move(read.why), remove && (*root)->remove(file)});
  }
  return report;
}

Result<PruneReport> prune(DiskStore& store, const PruneOptions& options) {
  if (store.options().read_only && !options.dry_run)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("kernel cache {} is read only", store.options().root)};
  const auto root = store.root();
  if (!root) return root.error();
  return prune(**root, store.options().root, options);
}

Result<CopyReport> copy_entries(DiskStore& from, DiskStore& to) {
  const auto root = from.root();
  if (!root) return root.error();
  CopyReport report;
  for (const EntryFile& file : (*root)->scan()) {
    if (to.get(file.name)) {
      ++report.present;
      continue;
    }
    const DiskRoot::ReadEntry read = (*root)->read(file.shard, file.file, file.name);
    if (read.state == ReadFile::State::absent) continue;
    if (!read.entry) {
      report.failed.push_back(fmt::format("{}: {}", file.path(), read.why));
    } else if (const Status done = to.publish(*read.entry); !done) {
      report.failed.push_back(fmt::format("{}: {}", file.path(), done.error().message));
    } else {
      ++report.copied;
    }
  }
  return report;
}

std::optional<NearestEntry> nearest_entry(DiskStore& store, std::string_view key_text) {
  const auto root = store.root();
  if (!root) return std::nullopt;
  std::optional<NearestEntry> best;
  for (const EntryFile& file : (*root)->scan()) {
    const DiskRoot::ReadEntry read = (*root)->read(file.shard, file.file, file.name);
    if (!read.entry) continue;
    auto differences = diff_key_texts(key_text, read.entry->key_text);
    if (!best || differences.size() < best->differences.size()) best = {file.name, std::move(differences)};
  }
  return best;
}

}  // namespace w4moe::cache
