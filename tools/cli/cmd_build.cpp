#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/compile/nvrtc_compiler.hpp"
#include "tools/cli/build_set.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/kernel_source.hpp"
#include "tools/cli/lock_file.hpp"
#include "tools/cli/progress.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;
using Uses = std::map<std::string, std::vector<KernelUse>>;

Json uses_json(const std::vector<KernelUse>& uses) {
  Json rows = Json::array();
  for (const KernelUse& use : uses) rows.push_back({{"problem", use.problem}, {"kernel", use.kernel}, {"tokens", use.tokens}});
  return rows;
}

Json kernel_json(const KernelReport& kernel, const Uses& uses, bool dry_run) {
  Json row = {{"key", kernel.key}, {"name", kernel.name}, {"arch", kernel.arch}, {"description", kernel.description}, {"hit", kernel.hit}};
  if (!kernel.error.empty()) row["error"] = kernel.error;
  if (kernel.error.empty() && (kernel.hit || !dry_run)) {
    row["nvrtc"] = kernel.builder;
    row["registers"] = kernel.registers;
    row["spill_bytes"] = kernel.spill_bytes;
    row["smem_bytes"] = kernel.smem_bytes;
    row["compile_ms"] = kernel.compile_ms;
  }
  if (const auto it = uses.find(kernel.key); it != uses.end()) row["used_by"] = uses_json(it->second);
  return row;
}

struct Outcome {
  BuildReport report;
  BuildSet set;
  Uses uses;
  bool dry_run = false;
  std::string output;
  std::string shard;                  ///< "2/8"; empty: all
  std::set<std::string> shard_keys;   ///< what the shard holds
};

/// Every kernel of the build in the order of its key, dealt out: the parts differ by one kernel at most, and depend on nothing but
/// what is built.
std::set<std::string> keys_of_shard(const Uses& uses, int shard, int shards) {
  std::set<std::string> keys;
  int place = 0;
  for (const auto& [key, rows] : uses) {
    if (place++ % shards == shard - 1) keys.insert(key);
  }
  return keys;
}

std::string as_json(const Outcome& o, const Console& console) {
  const int failed = o.report.failed + static_cast<int>(o.set.failures.size());
  Json document = {{"schema", "w4moe.build/1"}, {"dry_run", o.dry_run}, {"output", o.output}, {"compiled", o.report.compiled},
                   {"hits", o.report.hits}, {"failed", failed}, {"seconds", o.report.seconds}};
  if (!o.dry_run) document["jobs"] = o.report.jobs;
  if (!o.shard.empty()) document["shard"] = o.shard;
  if (o.dry_run) document["to_compile"] = static_cast<int>(o.report.kernels.size()) - o.report.hits;
  document["kernels"] = Json::array();
  for (const KernelReport& kernel : o.report.kernels) document["kernels"].push_back(kernel_json(kernel, o.uses, o.dry_run));
  document["failures"] = Json::array();
  for (const PlanFailure& f : o.set.failures) {
    document["failures"].push_back({{"problem", f.problem}, {"where", f.where}, {"arch", f.arch}, {"code", code_name(f.error.code)}, {"message", f.error.message}});
  }
  document["warnings"] = console.warnings();
  if (interrupted()) document["interrupted"] = true;
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_text(const Outcome& o) {
  std::string text;
  for (const KernelReport& k : o.report.kernels) {
    if (!k.error.empty()) continue;  // told on stderr
    const char* state = k.hit ? "hit" : o.dry_run ? "to compile" : "compiled";
    text += fmt::format("{}  {:<10} {:<7} {}\n", k.key.substr(0, 12), state, k.arch, k.description);
    if (!o.dry_run) continue;
    const auto uses = o.uses.find(k.key);
    if (uses == o.uses.end()) continue;
    for (const KernelUse& use : uses->second) {
      std::string ranges;
      for (const auto& [first, last] : use.tokens) ranges += fmt::format("{}{}..{}", ranges.empty() ? "" : ", ", first, last);
      // A kernel that packs weights runs for no tokens.
      text += fmt::format("              {} for {}{}{}\n", use.kernel, use.problem, ranges.empty() ? "" : ", tokens ", ranges);
    }
  }
  const int failed = o.report.failed + static_cast<int>(o.set.failures.size());
  if (o.dry_run) {
    text += fmt::format("{} kernels: {} to compile, {} hits; {} layers failed\n", o.report.kernels.size(),
                        static_cast<int>(o.report.kernels.size()) - o.report.hits, o.report.hits, o.set.failures.size());
  } else {
    text += fmt::format("{} compiled, {} hits, {} failed in {:.1f} s\n", o.report.compiled, o.report.hits, failed, o.report.seconds);
  }
  return text;
}

/// toolchain_missing where something must be compiled and cannot be.
Status check_compiler(const BuildReport& listed, const Options& options, const Config& config) {
  const auto missing = std::count_if(listed.kernels.begin(), listed.kernels.end(), [](const KernelReport& k) { return !k.hit; });
  if (missing == 0 || config.jit == JitMode::off) return {};
  NvrtcSearch search;
  search.explicit_path = config.nvrtc_option;
  search.environment_path = config.nvrtc_environment;
  const Result<std::string> build = NvrtcCompiler(search).build();
  if (build) return {};
  return Error{build.error().code, fmt::format("{} of {} kernels are not in {} and must be compiled, but {}", missing, listed.kernels.size(),
                                               options.build.output.empty() ? "the cache" : options.build.output, build.error().message)};
}

void tell_failures(const Outcome& o, Console& console) {
  for (const PlanFailure& f : o.set.failures) {
    console.error(fmt::format("{}{}{} on {}: {}", f.problem, f.where.empty() ? "" : " at ", f.where, f.arch, f.error.message));
  }
  for (const KernelReport& k : o.report.kernels) {
    if (!k.error.empty() && !interrupted()) console.error(fmt::format("{} ({}): {}", k.name, k.description, k.error));
  }
}

int outcome_code(const Outcome& o) {
  if (interrupted()) return kInterrupted;
  if (o.report.failed > 0) return kSomeFailed;
  if (o.set.failures.empty()) return kDone;
  // A single layer that is not served is not "some items".
  if (o.set.plans.empty() && o.set.failures.size() == 1) return exit_code(o.set.failures.front().error.code);
  return kSomeFailed;
}

/// A folder to be shipped must hold what was built: a cache may drop what it cannot write, this may not.
Status check_shipped(const Outcome& o, const std::string& folder) {
  cache::DiskOptions options;
  options.root = folder;
  options.read_only = true;
  std::set<std::string> present;
  for (const cache::StoredEntry& entry : cache::DiskStore(options).list()) present.insert(entry.name.key.hex());
  const auto lost = std::count_if(o.report.kernels.begin(), o.report.kernels.end(),
                                  [&](const KernelReport& k) { return k.error.empty() && present.count(k.key) == 0; });
  if (lost == 0) return {};
  return Error{ErrorCode::io, fmt::format("{} of {} kernels could not be written to {} (is it writable, and yours?)", lost, o.report.kernels.size(), folder)};
}

/// A folder's own list names all that is in it; that of a shard, and of a cache that holds more, what this build made or found.
Status write_lists(const Outcome& o, const Options& options, const std::string& folder) {
  const bool part = !o.shard.empty() || o.output.empty();
  const auto of_this_build = [&](const cache::EntryName& name) { return !part || o.shard_keys.count(name.key.hex()) != 0; };
  const std::string in_folder = folder + "/" + (o.shard.empty() ? kLockFileName : shard_lock_name(options.build.shard, options.build.shards));
  return write_lock_file(folder, options.build.lock.empty() ? in_folder : options.build.lock, of_this_build);
}

Status build_into(Outcome& o, const KernelOptions& kernels, const Options& options, Console& console) {
  Result<BuildReport> listed = list_kernels(o.set.plans, kernels);
  if (!listed) return listed.error();
  std::erase_if(listed->kernels, [&](const KernelReport& k) { return o.shard_keys.count(k.key) == 0; });
  listed->hits = static_cast<int>(std::count_if(listed->kernels.begin(), listed->kernels.end(), [](const KernelReport& k) { return k.hit; }));
  if (o.dry_run) {
    o.report = std::move(*listed);
    return {};
  }
  const Result<Config> config = resolve_config(kernels, process_environment);
  if (!config) return config.error();
  if (Status s = check_compiler(*listed, options, *config); !s) return s;
  Progress progress(console, "kernels");
  const InterruptGuard guard;
  BuildOptions build;
  build.keep_going = !options.build.fail_fast;
  build.cancelled = interrupted;
  build.wanted = [&](const KernelReport& kernel) { return o.shard_keys.count(kernel.key) != 0; };
  build.progress = [&](const KernelReport& kernel, int done, int total) {
    progress.step(done, total, fmt::format("{} {} {}", kernel.error.empty() ? kernel.hit ? "found" : "compiled" : "failed", kernel.name, kernel.arch));
  };
  Result<BuildReport> report = build_kernels(o.set.plans, kernels, build);
  progress.clear();
  if (!report) return report.error();
  o.report = std::move(*report);
  const std::string folder = o.output.empty() ? config->cache.disk.root : o.output;
  if (interrupted() || (o.output.empty() && options.build.lock.empty())) return {};
  if (Status s = check_shipped(o, folder); !s) return s;
  return write_lists(o, options, folder);
}

}  // namespace

Result<int> cmd_build(const Options& options, Console& console) {
  Result<BuildSet> set = build_set_from(options);
  if (!set) return set.error();
  Outcome outcome;
  outcome.set = std::move(*set);
  outcome.uses = kernel_uses(outcome.set.plans);
  outcome.dry_run = options.build.dry_run;
  outcome.shard_keys = keys_of_shard(outcome.uses, options.build.shard, options.build.shards);
  if (options.build.shards > 1) outcome.shard = fmt::format("{}/{}", options.build.shard, options.build.shards);
  KernelOptions kernels = kernel_options(options.kernels, console);
  if (!options.build.output.empty()) {
    outcome.output = absolute_path(options.build.output);
    kernels.cache_dir = outcome.output;
    kernels.cache = CacheUse::on;
    kernels.public_cache_dir = true;
    // What other directories hold must be in this one too.
    kernels.readonly_dirs.emplace();
  }
  if (options.build.fail_fast && !outcome.set.failures.empty()) return outcome.set.failures.front().error;
  if (Status s = build_into(outcome, kernels, options, console); !s) {
    if (interrupted()) {  // --fail-fast: the first cancelled kernel ends the build
      outcome.report = {};
    } else {
      return s.error();
    }
  }
  console.result(console.json() ? as_json(outcome, console) : as_text(outcome));
  tell_failures(outcome, console);
  if (interrupted()) console.error("interrupted: the kernels that were finished are in the cache");
  return outcome_code(outcome);
}

}  // namespace w4moe::cli
