#include "runtime/config.hpp"

#include <map>

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
