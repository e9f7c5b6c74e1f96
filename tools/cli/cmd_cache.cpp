#include "cache/maintenance.hpp"

#include <ctime>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "contract/args.h"
#include "contract/layout_id.h"
#include "generator/problem/errors.hpp"
#include "generator/render/bundle.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/kernel_source.hpp"
#include "tools/cli/line_diff.hpp"
#include "tools/cli/lock_file.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string utc(std::int64_t seconds) {
  const std::time_t time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// A document with its schema and the folder it is about.
Json document_for(const std::string& action, const std::string& root) { return {{"schema", "w4moe.cache." + action + "/1"}, {"path", root}}; }

void finish(Console& console, Json document, const std::string& text) {
  if (!console.json()) return console.result(text);
  document["warnings"] = console.warnings();
  console.result(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<int> path(const Options& options, Console& console) {
  const Result<Config> config = resolve_config(kernel_options(options.kernels, console), process_environment);
  if (!config) return config.error();
  const std::string& root = config->cache.disk.root;
  std::string origin;
  for (const ConfigRow& row : config->rows) {
    if (row.name == "cache_dir") origin = row.origin;
  }
  if (!config->cache_warning.empty()) console.warning(config->cache_warning);
  Json document = document_for("path", root);
  if (root.empty()) document["path"] = nullptr;
  document["origin"] = origin;
  document["readonly_dirs"] = config->cache.read_only_dirs;
  finish(console, std::move(document), root.empty() ? std::string() : root + "\n");
  return kDone;
}

Result<int> list(cache::DiskStore& store, Console& console) {
  Json document = document_for("list", store.options().root);
  document["entries"] = Json::array();
  std::string text;
  for (const cache::StoredEntry& stored : store.list()) {
    const std::optional<cache::Entry> entry = store.get(stored.name);
    Json row = {{"key", stored.name.key.hex()}, {"nvrtc", stored.name.builder}, {"bytes", stored.bytes}, {"last_used", utc(stored.last_used_s)},
                {"path", stored.path}, {"ok", entry.has_value()}};
    std::string description = "DAMAGED";
    if (entry) {
      description = metadata_text(*entry, "description");
      row["name"] = metadata_text(*entry, "name");
      row["arch"] = metadata_text(*entry, "arch");
      row["description"] = description;
    }
    text += fmt::format("{}  {:>9}  {}  {}\n", stored.name.key.short_hex(), stored.bytes, utc(stored.last_used_s), description);
    document["entries"].push_back(std::move(row));
  }
  finish(console, std::move(document), text);
  return kDone;
}

Result<int> stats(cache::DiskStore& store, Console& console) {
  Json document = document_for("stats", store.options().root);
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  for (const cache::StoredEntry& stored : store.list()) {
    ++entries;
    bytes += stored.bytes;
  }
  document["entries"] = entries;
  document["bytes"] = bytes;
  document["max_bytes"] = store.options().max_bytes;
  std::string text = fmt::format("{}\nentries          {}\nbytes            {} (limit {})\n", store.options().root, entries, bytes, store.options().max_bytes);
  const cache::Stats totals = cache::read_total_stats(store);
  for (const cache::StatsField& field : cache::kStatsFields) {
    document["counters"][std::string(field.name)] = totals.*field.value;
    text += fmt::format("{:<16} {}\n", field.name, totals.*field.value);
  }
  finish(console, std::move(document), text);
  return kDone;
}

/// A cache that nobody has used yet is empty; a folder that was named must be there.
bool not_made_yet(const Options& options, const cache::DiskStore& store) {
  std::error_code ignored;
  return options.cache.readonly.empty() && options.kernels.cache_dir.empty() && !std::filesystem::exists(store.options().root, ignored);
}

Result<int> verify(const Options& options, cache::DiskStore& store, Console& console) {
  const Result<cache::VerifyReport> report =
      not_made_yet(options, store) ? Result<cache::VerifyReport>(cache::VerifyReport{}) : cache::verify(store, options.cache.remove);
  if (!report) return report.error();
  const Result<LockDifference> lock = compare_with_lock(store, options.cache.lock);
  if (!lock) return lock.error();
  Json document = document_for("verify", store.options().root);
  document["checked"] = report->checked;
  document["bytes"] = report->bytes;
  document["damaged"] = Json::array();
  std::string text;
  for (const cache::VerifyReport::Damage& damage : report->damaged) {
    document["damaged"].push_back({{"path", damage.path}, {"reason", damage.reason}, {"removed", damage.removed}});
    text += fmt::format("damaged  {}: {}{}\n", damage.path, damage.reason, damage.removed ? " (removed)" : "");
  }
  document["lists"] = lock->files;
  document["missing"] = lock->missing;
  document["changed"] = lock->changed;
  document["unlisted"] = lock->unlisted;
  for (const std::string& name : lock->missing) text += fmt::format("missing  {}\n", name);
  for (const std::string& name : lock->changed) text += fmt::format("changed  {}\n", name);
  for (const std::string& name : lock->unlisted) text += fmt::format("unlisted {}\n", name);
  text += fmt::format("{} entries checked ({} bytes), {} damaged; {}\n", report->checked, report->bytes, report->damaged.size(),
                      lock->files.empty() ? std::string("no list to hold them against")
                                          : fmt::format("{} missing, {} changed, {} unlisted", lock->missing.size(), lock->changed.size(), lock->unlisted.size()));
  finish(console, std::move(document), text);
  // A folder's own list may be older than what was put there since; a list that was named is the whole truth.
  const bool as_listed = lock->missing.empty() && lock->changed.empty() && (options.cache.lock.empty() || lock->unlisted.empty());
  return report->damaged.empty() && as_listed ? kDone : kDamaged;
}

Result<int> prune(const Options& options, cache::DiskStore& store, Console& console) {
  const CacheFlags& flags = options.cache;
  cache::PruneOptions wish;
  wish.dry_run = flags.dry_run;
  if (flags.action == "clean") {
    if (flags.old) {
      wish.current = {{"bundle", bundle_digest()}, {"layout_version", std::to_string(kLayoutVersion)}, {"args_version", std::to_string(kArgsVersion)}};
      wish.other_schemas = true;
    } else {
      wish.max_bytes = 0;
    }
  } else {
    wish.max_bytes = store.options().max_bytes;
    if (!flags.max_size.empty()) {
      const Result<std::uint64_t> bytes = cache::parse_size(flags.max_size);
      if (!bytes) return invalid_argument("--max-size: {}", bytes.error().message);
      wish.max_bytes = *bytes;
    }
    if (*wish.max_bytes == 0) wish.max_bytes.reset();  // no limit
    if (flags.max_age_days) wish.max_age_s = static_cast<std::int64_t>(*flags.max_age_days * 86400.0);
  }
  const Result<cache::PruneReport> report = not_made_yet(options, store) ? Result<cache::PruneReport>(cache::PruneReport{}) : cache::prune(store, wish);
  if (!report) return report.error();
  Json document = document_for(flags.action, store.options().root);
  document["dry_run"] = flags.dry_run;
  document["removed"] = Json::array();
  std::string text;
  for (const cache::PrunedItem& item : report->removed) {
    document["removed"].push_back({{"path", item.path}, {"bytes", item.bytes}, {"reason", item.reason}});
    text += fmt::format("{} {} ({}, {} bytes)\n", flags.dry_run ? "would remove" : "removed", item.path, item.reason, item.bytes);
  }
  document["removed_bytes"] = report->removed_bytes;
  document["kept_entries"] = report->kept_entries;
  document["kept_bytes"] = report->kept_bytes;
  text += fmt::format("{} {} files, {} bytes; {} entries, {} bytes stay\n", flags.dry_run ? "would remove" : "removed", report->removed.size(),
                      report->removed_bytes, report->kept_entries, report->kept_bytes);
  finish(console, std::move(document), text);
  return kDone;
}

Json optional_text(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }

Result<int> explain(const Options& options, cache::DiskStore& store, Console& console) {
  std::vector<cache::Entry> entries;
  for (const std::string& digits : options.cache.keys) {
    Result<cache::Entry> entry = named_entry(store, digits);
    if (!entry) return entry.error();
    entries.push_back(std::move(*entry));
  }
  Json document = document_for("explain", store.options().root);
  std::string text;
  for (const cache::Entry& entry : entries) document["keys"].push_back(entry.key().hex());
  if (entries.size() == 1) {
    document["fields"] = Json::array();
    for (const cache::KeyField& field : cache::parse_key_text(entries[0].key_text).value_or(std::vector<cache::KeyField>{})) {
      document["fields"].push_back({{"label", field.label}, {"value", field.value}});
      text += fmt::format("{}: {}\n", field.label, field.value);
    }
  } else {
    document["differences"] = Json::array();
    for (const cache::KeyDifference& d : cache::diff_key_texts(entries[0].key_text, entries[1].key_text)) {
      document["differences"].push_back({{"label", d.label}, {"left", optional_text(d.left)}, {"right", optional_text(d.right)}});
      text += fmt::format("{}:\n{}", d.label, line_diff(d.left.value_or("(none)"), d.right.value_or("(none)")));
    }
    if (text.empty()) text = "the keys are equal\n";
  }
  finish(console, std::move(document), text);
  return kDone;
}

/// export: the cache to a folder that can be shipped; import: such a folder, or any cache, to the cache. Also merges two.
Result<int> copy(const Options& options, cache::DiskStore& store, Console& console) {
  const bool out = options.cache.action == "export";
  cache::DiskOptions other_options;
  other_options.root = absolute_path(options.cache.folder);
  other_options.read_only = !out;
  other_options.public_read = out;
  other_options.max_bytes = 0;  // nothing is evicted from what was asked for
  other_options.trust = store.options().trust;
  other_options.warn = [&console](const std::string& message) { console.warning(message); };
  cache::DiskStore other(other_options);
  cache::DiskStore& to = out ? other : store;
  const Result<cache::CopyReport> report = out && not_made_yet(options, store) ? Result<cache::CopyReport>(cache::CopyReport{})
                                                                               : cache::copy_entries(out ? store : other, to);
  if (!report) return report.error();
  if (out && report->copied + report->present > 0) {
    if (Status s = write_lock_file(other_options.root, other_options.root + "/" + kLockFileName); !s) return s.error();
  }
  Json document = document_for(options.cache.action, to.options().root);
  document["from"] = (out ? store : other).options().root;
  document["copied"] = report->copied;
  document["present"] = report->present;
  document["failed"] = report->failed;
  std::string text;
  for (const std::string& why : report->failed) console.error(why);
  text += fmt::format("{} entries copied to {}, {} were there, {} failed\n", report->copied, to.options().root, report->present, report->failed.size());
  finish(console, std::move(document), text);
  return report->failed.empty() ? kDone : kSomeFailed;
}

}  // namespace

Result<int> cmd_cache(const Options& options, Console& console) {
  const std::string& action = options.cache.action;
  if (action == "path") return path(options, console);
  const Result<std::unique_ptr<cache::DiskStore>> store = open_cache(options.kernels, options.cache.readonly, console);
  if (!store) return store.error();
  if (action == "list") return list(**store, console);
  if (action == "stats") return stats(**store, console);
  if (action == "verify") return verify(options, **store, console);
  if (action == "export" || action == "import") return copy(options, **store, console);
  if (action == "explain") return explain(options, **store, console);
  return prune(options, **store, console);
}

}  // namespace w4moe::cli
