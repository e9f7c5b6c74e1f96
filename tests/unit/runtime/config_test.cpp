#include "runtime/config.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/build/job_limit.hpp"
#include "runtime/config_file.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

using Env = std::map<std::string, std::string>;

cache::EnvFn env_of(Env variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

Config config_of(const Env& env, const KernelOptions& options = {}) { return must(resolve_config(options, env_of(env))); }

ConfigRow row(const Config& config, const std::string& name) {
  for (const ConfigRow& r : config.rows) {
    if (r.name == name) return r;
  }
  FAIL("no row " << name);
  return {};
}

}  // namespace

TEST_CASE("config: defaults without a variable") {
  const Config config = config_of({});
  CHECK(config.jit == JitMode::on);
  CHECK(config.cache.mode == cache::CacheMode::on);
  CHECK(config.cache.disk.root.empty());  // no HOME: memory only
  CHECK_FALSE(config.cache_warning.empty());
  CHECK(config.jobs >= 1);
  CHECK_FALSE(config.log.enabled);
  for (const ConfigRow& r : config.rows) CHECK(r.origin == "default");
}

TEST_CASE("config: each variable is read, and its origin told") {
  const Config config = config_of({{"W4MOE_JIT", "off"},
                                   {"W4MOE_CACHE", "readonly"},
                                   {"W4MOE_CACHE_DIR", "/tmp/w4moe-somewhere"},
                                   {"W4MOE_CACHE_READONLY_DIRS", "/a:/b::"},
                                   {"W4MOE_CACHE_MAX_SIZE", "3G"},
                                   {"W4MOE_CACHE_SHARED", "1"},
                                   {"W4MOE_NVRTC", "/opt/nvrtc"},
                                   {"W4MOE_JOBS", "3"},
                                   {"W4MOE_MEMORY_LIMIT", "4G"},
                                   {"W4MOE_ARCH", "sm_120a"},
                                   {"W4MOE_CONFIG", "/dev/null"},
                                   {"W4MOE_DUMP_DIR", "/tmp/dump"},
                                   {"W4MOE_LOG", "debug,/tmp/log.txt"}});
  CHECK(config.jit == JitMode::off);
  CHECK(config.cache.mode == cache::CacheMode::readonly);
  CHECK(config.cache.disk.root == "/tmp/w4moe-somewhere");
  CHECK(config.cache.read_only_dirs == std::vector<std::string>{"/a", "/b"});
  CHECK(config.cache.disk.max_bytes == std::uint64_t{3} << 30);
  CHECK(config.cache.disk.trust.shared);
  CHECK(config.nvrtc_environment == "/opt/nvrtc");
  CHECK(config.jobs == 3);
  CHECK(config.memory_bytes == std::uint64_t{4} << 30);
  CHECK(config.arch == "sm_120a");
  CHECK(config.dump_dir == "/tmp/dump");
  CHECK(config.log.enabled);
  CHECK(config.log.level == LogLevel::debug);
  CHECK(config.log.file == "/tmp/log.txt");
  for (const ConfigRow& r : config.rows) {
    INFO(r.name);
    CHECK(r.origin.substr(0, 11) == "environment");
  }
}

TEST_CASE("config: an option of the caller comes before the environment") {
  KernelOptions options;
  options.jit = JitMode::on;
  options.cache = CacheUse::off;
  options.cache_dir = "/tmp/mine";
  options.jobs = 2;
  options.nvrtc = "/mine/libnvrtc.so.13";
  const Config config = config_of({{"W4MOE_JIT", "off"}, {"W4MOE_CACHE", "on"}, {"W4MOE_CACHE_DIR", "/x"}, {"W4MOE_JOBS", "7"}, {"W4MOE_NVRTC", "/y"}}, options);
  CHECK(config.jit == JitMode::on);
  CHECK(config.cache.mode == cache::CacheMode::off);
  CHECK(config.cache.disk.root == "/tmp/mine");
  CHECK(config.jobs == 2);
  CHECK(config.nvrtc_option == "/mine/libnvrtc.so.13");
  CHECK(config.nvrtc_environment.empty());
  for (const char* name : {"jit", "cache", "cache_dir", "jobs", "nvrtc"}) CHECK(row(config, name).origin == "option");
}

TEST_CASE("config: a value that cannot be read is an error with the variable and what it accepts") {
  const std::pair<const char*, const char*> bad[] = {{"W4MOE_JIT", "maybe"},     {"W4MOE_CACHE", "2"},  {"W4MOE_CACHE_MAX_SIZE", "lots"},
                                                     {"W4MOE_CACHE_SHARED", "y"}, {"W4MOE_JOBS", "0"},   {"W4MOE_JOBS", "3x"},
                                                     {"W4MOE_LOG", "loud"},       {"W4MOE_JOBS", "-1"}};
  for (const auto& [variable, value] : bad) {
    INFO(variable << "=" << value);
    const std::string message = error_of(resolve_config({}, env_of({{variable, value}})), ErrorCode::invalid_argument);
    CHECK(message.find(variable) != std::string::npos);
  }
  CHECK(error_of(resolve_config({}, env_of({{"W4MOE_JIT", "maybe"}})), ErrorCode::invalid_argument).find("on, off") != std::string::npos);
  KernelOptions options;
  options.jobs = 0;
  error_of(resolve_config(options, env_of({})), ErrorCode::invalid_argument);
}

TEST_CASE("config: an empty variable counts as unset") {
  const Config config = config_of({{"W4MOE_JIT", ""}, {"W4MOE_JOBS", ""}, {"W4MOE_LOG", ""}});
  CHECK(row(config, "jit").origin == "default");
  CHECK(row(config, "jobs").origin == "default");
}

namespace {

/// A configuration file in a folder of its own.
struct FileFixture {
  TempDir dir;
  std::string path = (dir / "config").string();

  void write(const std::string& text, const std::string& to = {}) const { std::ofstream(to.empty() ? path : to) << text; }
  Env env(Env more = {}) const {
    more.emplace("W4MOE_CONFIG", path);
    return more;
  }
};

}  // namespace

TEST_CASE_METHOD(FileFixture, "config file: every setting, below variables and options, above the defaults") {
  write("# a comment\n\njit = off\n cache=readonly \ncache_dir = /tmp/from-file\nreadonly_dirs = /a:/b\ncache_max_size = 3G\ncache_shared = 1\n"
        "nvrtc = /opt/nvrtc\r\njobs = 3\nmemory_limit = 1G\ndump_dir = /tmp/dump\nlog = info\narch = sm_89");
  const Config config = config_of(env());
  for (const ConfigRow& r : config.rows) {
    INFO(r.name);
    CHECK(r.origin == (r.name == "config" ? "environment" : "config file"));
  }
  CHECK(row(config, "config").value == path);
  CHECK(config.jit == JitMode::off);
  CHECK(config.cache.mode == cache::CacheMode::readonly);
  CHECK(config.cache.disk.root == "/tmp/from-file");
  CHECK(config.cache.read_only_dirs == std::vector<std::string>{"/a", "/b"});
  CHECK(config.cache.disk.max_bytes == std::uint64_t{3} << 30);
  CHECK(config.cache.disk.trust.shared);
  CHECK(config.nvrtc_environment == "/opt/nvrtc");
  CHECK(config.jobs == 3);
  CHECK(config.memory_bytes == std::uint64_t{1} << 30);
  CHECK(config.log.level == LogLevel::info);
  CHECK(config.arch == "sm_89");
  CHECK(must(default_arch(env_of(env()))) == "sm_89");

  KernelOptions options;
  options.jobs = 2;
  const Config over = config_of(env({{"W4MOE_JIT", "on"}, {"W4MOE_CACHE_DIR", "/tmp/from-variable"}, {"W4MOE_JOBS", "9"}, {"W4MOE_ARCH", "sm_80"}}), options);
  CHECK(row(over, "jit").origin == "environment");
  CHECK(row(over, "cache_dir").origin == "environment, W4MOE_CACHE_DIR");
  CHECK(over.cache.disk.root == "/tmp/from-variable");
  CHECK(row(over, "jobs").origin == "option");
  CHECK(over.arch == "sm_80");
}

TEST_CASE_METHOD(FileFixture, "config file: found below XDG_CONFIG_HOME, then HOME; a named one must exist") {
  std::filesystem::create_directories(dir / "xdg/w4moe");
  std::filesystem::create_directories(dir / "home/.config/w4moe");
  write("jobs = 5\n", (dir / "xdg/w4moe/config").string());
  write("jobs = 6\n", (dir / "home/.config/w4moe/config").string());
  const Env both = {{"XDG_CONFIG_HOME", (dir / "xdg").string()}, {"HOME", (dir / "home").string()}};
  CHECK(config_of(both).jobs == 5);
  CHECK(config_of({{"XDG_CONFIG_HOME", "relative"}, {"HOME", (dir / "home").string()}}).jobs == 6);
  CHECK(row(config_of(both), "config").origin == "default");
  CHECK(row(config_of({{"HOME", dir.path().string()}}), "config").value == "none");
  CHECK(error_of(resolve_config({}, env_of(env())), ErrorCode::io).find(path) != std::string::npos);
}

TEST_CASE_METHOD(FileFixture, "config file: what is wrong in it is one error with file, line and what is accepted") {
  const std::pair<const char*, std::vector<std::string>> bad[] = {
      {"jobs = 2\njobs four\n", {":2:", "key = value"}}, {"\n\njob = 2\n", {":3:", "'job'", "jobs"}},
      {"jobs = 2\njobs = 3\n", {":2:", "twice"}},        {"jobs = many\n", {":1:", "many", "number"}},
      {"jit = maybe\n", {":1:", "maybe", "on, off"}},    {"= 3\n", {":1:"}}};
  for (const auto& [text, words] : bad) {
    INFO(text);
    write(text);
    const std::string message = error_of(resolve_config({}, env_of(env())), ErrorCode::invalid_argument);
    CHECK(message.find(path) != std::string::npos);
    for (const std::string& word : words) CHECK(message.find(word) != std::string::npos);
  }
  write(std::string(100000, '#'));
  error_of(resolve_config({}, env_of(env())), ErrorCode::io);
  write("jobs =\n");
  CHECK(row(config_of(env()), "jobs").origin == "default");
}

TEST_CASE_METHOD(FileFixture, "config file: one that everybody may write is refused, since it says which code is loaded") {
  write("jobs = 2\n");
  std::filesystem::permissions(path, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  CHECK(error_of(resolve_config({}, env_of(env())), ErrorCode::invalid_argument).find("chmod o-w") != std::string::npos);
}

TEST_CASE("C20: jobs are cut down to what memory bears, and one is always allowed") {
  constexpr std::uint64_t kMiB = 1 << 20;
  CHECK(bounded_jobs(8, 1024 * kMiB) == 4);
  CHECK(bounded_jobs(2, 1024 * kMiB) == 2);
  CHECK(bounded_jobs(8, 1) == 1);
  CHECK(bounded_jobs(0, 1024 * kMiB) == 1);
  CHECK(bounded_jobs(4, std::uint64_t{1} << 50) == 4);
  CHECK(usable_memory_bytes() > 64 * kMiB);
  CHECK(processors() >= 1);
}
