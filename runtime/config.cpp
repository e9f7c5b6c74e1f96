#include "runtime/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "generator/problem/errors.hpp"
#include "runtime/build/job_limit.hpp"
#include "runtime/config_file.hpp"

namespace w4moe {
namespace {

constexpr int kMaxDefaultJobs = 8;
constexpr const char* kArchVariable = "W4MOE_ARCH";
constexpr const char* kDefaultArch = "sm_90a";

/// One setting's sources, in the order of their precedence.
class Resolver {
 public:
  Resolver(const cache::EnvFn& environment, const ConfigFile& file, std::vector<ConfigRow>& rows)
      : environment_(environment), file_(file), rows_(rows) {}

  /// `parse` turns the variable's text into a T; `show` turns the result into text.
  template <class T, class Parse, class Show>
  Result<T> resolve(const char* name, const char* variable, const std::optional<T>& option, T fallback, Parse parse, Show show) {
    const auto row = [&](const T& value, const char* origin) {
      rows_.push_back(ConfigRow{name, variable, show(value), origin});
      return value;
    };
    if (option) return row(*option, "option");
    const std::optional<std::string> text = environment_(variable);
    if (text && !text->empty()) {
      Result<T> parsed = parse(*text);
      if (!parsed) return invalid_argument("{}={}: {}", variable, *text, parsed.error().message);
      return row(*parsed, "environment");
    }
    if (const ConfigFile::Value* const value = file_.find(name)) {
      Result<T> parsed = parse(value->text);
      if (!parsed) return invalid_argument("{}:{}: {} = {}: {}", file_.path, value->line, name, value->text, parsed.error().message);
      return row(*parsed, "config file");
    }
    return row(fallback, "default");
  }

  const ConfigFile& file() const { return file_; }

 private:
  const cache::EnvFn& environment_;
  const ConfigFile& file_;
  std::vector<ConfigRow>& rows_;
};

/// A parser for a setting with a few named values.
template <class T>
auto one_of(std::vector<std::pair<const char*, T>> names) {
  return [names = std::move(names)](const std::string& text) -> Result<T> {
    std::string accepted;
    for (const auto& [name, value] : names) {
      if (text == name) return value;
      accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", name);
    }
    return invalid_argument("accepted: {}", accepted);
  };
}

Result<int> parse_jobs(const std::string& text) {
  int jobs = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), jobs);
  if (error != std::errc() || end != text.data() + text.size() || jobs < 1) return invalid_argument("accepted: a number from 1 on");
  return jobs;
}

Result<std::string> any_text(const std::string& text) { return text; }
std::string show_text(const std::string& text) { return text; }

Result<std::vector<std::string>> split_dirs(const std::string& text) {
  std::vector<std::string> dirs;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) dirs.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return dirs;
}

Result<LogSettings> parse_log(const std::string& text) {
  const std::size_t comma = text.find(',');
  const auto level = one_of<LogLevel>({{"warn", LogLevel::warning}, {"info", LogLevel::info}, {"debug", LogLevel::debug}})(text.substr(0, comma));
  if (!level) return invalid_argument("{}, each with ',FILE'", level.error().message);
  return LogSettings{true, *level, comma == std::string::npos ? "" : text.substr(comma + 1)};
}

std::string show_log(const LogSettings& log) {
  if (!log.enabled) return "off";
  const char* level = log.level == LogLevel::warning ? "warn" : log.level == LogLevel::info ? "info" : "debug";
  return log.file.empty() ? level : fmt::format("{},{}", level, log.file);
}

std::string show_cache(cache::CacheMode mode) {
  return mode == cache::CacheMode::on ? "on" : mode == cache::CacheMode::readonly ? "readonly" : "off";
}

std::optional<cache::CacheMode> cache_option(const std::optional<CacheUse>& use) {
  if (!use) return std::nullopt;
  return *use == CacheUse::on ? cache::CacheMode::on : *use == CacheUse::readonly ? cache::CacheMode::readonly : cache::CacheMode::off;
}

Status resolve_cache(const KernelOptions& options, const cache::EnvFn& environment, Resolver& resolver, Config& config) {
  using cache::CacheMode;
  const auto mode = resolver.resolve<CacheMode>("cache", "W4MOE_CACHE", cache_option(options.cache), CacheMode::on,
                                                one_of<CacheMode>({{"on", CacheMode::on}, {"off", CacheMode::off}, {"readonly", CacheMode::readonly}}),
                                                show_cache);
  if (!mode) return mode.error();
  config.cache.mode = *mode;

  const auto variable = environment("W4MOE_CACHE_DIR");
  const ConfigFile::Value* const in_file = options.cache_dir || (variable && !variable->empty()) ? nullptr : resolver.file().find("cache_dir");
  // The file stands in for the variable that is not set.
  const cache::Location location = cache::resolve_location(options.cache_dir, [&](const char* name) -> std::optional<std::string> {
    return in_file != nullptr && std::string_view(name) == "W4MOE_CACHE_DIR" ? in_file->text : environment(name);
  });
  config.cache.disk.root = location.path;
  config.cache_warning = location.warning;
  const bool from_environment = location.origin != cache::LocationOrigin::explicit_path && location.origin != cache::LocationOrigin::none;
  config.rows.push_back(ConfigRow{"cache_dir", "W4MOE_CACHE_DIR", location.path.empty() ? "none: kernels are kept in memory only" : location.path,
                                  in_file != nullptr ? std::string("config file")
                                  : from_environment ? fmt::format("environment, {}", to_string(location.origin))
                                                   : location.origin == cache::LocationOrigin::none ? "default" : "option"});

  const auto dirs = resolver.resolve<std::vector<std::string>>("readonly_dirs", "W4MOE_CACHE_READONLY_DIRS", options.readonly_dirs, {}, split_dirs,
                                                               [](const auto& list) { return fmt::format("{}", fmt::join(list, ":")); });
  if (!dirs) return dirs.error();
  config.cache.read_only_dirs = *dirs;

  const auto size = resolver.resolve<std::uint64_t>("cache_max_size", "W4MOE_CACHE_MAX_SIZE", options.cache_max_bytes, cache::kDefaultMaxBytes,
                                                    [](const std::string& text) { return cache::parse_size(text); },
                                                    [](std::uint64_t bytes) { return bytes == 0 ? "unlimited" : fmt::format("{}", bytes); });
  if (!size) return size.error();
  config.cache.disk.max_bytes = *size;

  const auto shared = resolver.resolve<bool>("cache_shared", "W4MOE_CACHE_SHARED", options.cache_shared, false,
                                             one_of<bool>({{"0", false}, {"1", true}}), [](bool on) { return std::string(on ? "1" : "0"); });
  if (!shared) return shared.error();
  config.cache.disk.trust.shared = *shared;
  config.cache.disk.public_read = options.public_cache_dir;
  return {};
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

Result<Config> resolve_config(const KernelOptions& options, const cache::EnvFn& environment) {
  Config config;
  const Result<ConfigFile> file = read_config_file(environment);
  if (!file) return file.error();
  config.rows.push_back(ConfigRow{"config", "W4MOE_CONFIG", file->path.empty() ? "none" : file->path, file->origin});
  Resolver resolver(environment, *file, config.rows);

  const auto jit = resolver.resolve<JitMode>("jit", "W4MOE_JIT", options.jit, JitMode::on, one_of<JitMode>({{"on", JitMode::on}, {"off", JitMode::off}}),
                                             [](JitMode mode) { return std::string(mode == JitMode::on ? "on" : "off"); });
  if (!jit) return jit.error();
  config.jit = *jit;

  if (Status s = resolve_cache(options, environment, resolver, config); !s) return s.error();

  const auto nvrtc = resolver.resolve<std::string>("nvrtc", "W4MOE_NVRTC", options.nvrtc, "", any_text,
                                                   [](const std::string& path) { return path.empty() ? std::string("found by the loader") : path; });
  if (!nvrtc) return nvrtc.error();
  (options.nvrtc ? config.nvrtc_option : config.nvrtc_environment) = *nvrtc;

  const auto jobs = resolver.resolve<int>("jobs", "W4MOE_JOBS", options.jobs, std::min(processors(), kMaxDefaultJobs), parse_jobs,
                                          [](int n) { return std::to_string(n); });
  if (!jobs) return jobs.error();
  if (*jobs < 1) return invalid_argument("jobs = {}: accepted: a number from 1 on", *jobs);
  config.jobs = *jobs;

  const auto memory = resolver.resolve<std::uint64_t>("memory_limit", "W4MOE_MEMORY_LIMIT", options.memory_bytes, 0,
                                                      [](const std::string& text) { return cache::parse_size(text); },
                                                      [](std::uint64_t bytes) { return bytes == 0 ? "what the machine has" : fmt::format("{}", bytes); });
  if (!memory) return memory.error();
  config.memory_bytes = *memory;

  const auto dump = resolver.resolve<std::string>("dump_dir", "W4MOE_DUMP_DIR", options.dump_dir, "", any_text, show_text);
  if (!dump) return dump.error();
  config.dump_dir = *dump;

  const auto log = resolver.resolve<LogSettings>("log", "W4MOE_LOG", std::nullopt, LogSettings{}, parse_log, show_log);
  if (!log) return log.error();
  config.log = *log;

  const auto arch = resolver.resolve<std::string>("arch", kArchVariable, std::nullopt, kDefaultArch, any_text, show_text);
  if (!arch) return arch.error();
  config.arch = *arch;
  return config;
}

Result<std::string> default_arch(const cache::EnvFn& environment) {
  if (const auto text = environment(kArchVariable); text && !text->empty()) return *text;
  const Result<ConfigFile> file = read_config_file(environment);
  if (!file) return file.error();
  const ConfigFile::Value* const value = file->find("arch");
  return value != nullptr ? value->text : std::string(kDefaultArch);
}

Result<std::vector<ConfigRow>> describe_config(const KernelOptions& kernels) {
  Result<Config> config = resolve_config(kernels, process_environment);
  if (!config) return config.error();
  return std::move(config->rows);
}

}  // namespace w4moe
