#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/compile/nvrtc_compiler.hpp"
#include "runtime/build/job_limit.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/device_choice.hpp"
#include "tools/cli/kernel_source.hpp"
#include "tools/cli/version.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;

Json nvrtc_json(const Config* config) {
  NvrtcSearch search;
  if (config != nullptr) {
    search.explicit_path = config->nvrtc_option;
    search.environment_path = config->nvrtc_environment;
  } else if (const auto variable = process_environment("W4MOE_NVRTC")) {
    search.environment_path = *variable;
  }
  NvrtcCompiler compiler(search);
  const auto library = compiler.library();
  if (!library) return {{"found", false}, {"problem", library.error().message}};
  Json json = {{"found", true}, {"path", (*library)->path()},
               {"version", fmt::format("{}.{}", (*library)->version().major, (*library)->version().minor)},
               {"archs", (*library)->supported_archs()}};
  const Result<std::string> build = (*library)->build();  // compiles one line: tells whether it works
  json["build"] = build ? Json(*build) : Json();
  json["problem"] = build ? Json() : Json(build.error().message);
  return json;
}

Json devices_json(const Machine& machine) {
  Json devices = Json::array();
  for (const Machine::Gpu& gpu : machine.gpus) {
    Json row = {{"name", gpu.name}, {"compute_capability", gpu.capability}};
    if (gpu.spec) {
      row["arch"] = to_string(gpu.spec->arch);
      row["sms"] = gpu.spec->sms;
      row["shared_optin_bytes"] = gpu.spec->shared_optin_bytes;
    } else {
      row["problem"] = gpu.spec.error().message;
    }
    devices.push_back(std::move(row));
  }
  return devices;
}

/// Whether the directory can be used, told by the store itself; nothing is made or changed.
Json cache_json(const Config& config, Console& console) {
  const std::string& root = config.cache.disk.root;
  Json json = {{"path", root.empty() ? Json() : Json(root)}};
  for (const ConfigRow& row : config.rows) {
    if (row.name == "cache_dir") json["origin"] = row.origin;
  }
  if (root.empty()) {
    json["state"] = "none";
    json["problem"] = config.cache_warning;
    return json;
  }
  if (!config.cache_warning.empty()) console.warning(config.cache_warning);
  cache::DiskOptions disk = config.cache.disk;
  disk.read_only = true;  // a look makes nothing
  const cache::DiskRoot::Opened opened = cache::DiskRoot::open(disk, false);
  const bool there = ::access(root.c_str(), F_OK) == 0;
  if (!opened.root && !(opened.error == ENOENT && there)) {
    json["state"] = opened.error == ENOENT ? "not made yet" : "refused";
    json["problem"] = opened.error == ENOENT ? Json() : Json(opened.why);
    return json;
  }
  const bool writable = ::access(root.c_str(), W_OK) == 0;
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  const std::vector<cache::EntryFile> files = opened.root ? opened.root->scan() : std::vector<cache::EntryFile>{};  // none: still empty
  for (const cache::EntryFile& file : files) {
    ++entries;
    bytes += static_cast<std::uint64_t>(file.info.st_size);
  }
  json["state"] = config.cache.mode == cache::CacheMode::off ? "off" : writable ? "writable" : "read only";
  json["entries"] = entries;
  json["bytes"] = bytes;
  json["problem"] = nullptr;
  return json;
}

/// The folders that are only read: what is wrong with each, and what it holds.
Json readonly_json(const Config& config) {
  Json rows = Json::array();
  for (const std::string& root : config.cache.read_only_dirs) {
    cache::DiskOptions disk = config.cache.disk;
    disk.root = root;
    disk.read_only = true;
    const cache::DiskRoot::Opened opened = cache::DiskRoot::open(disk, false);
    Json row = {{"path", root}, {"state", opened.root ? "readable" : "refused"}, {"entries", opened.root ? opened.root->scan().size() : 0}};
    row["problem"] = opened.root ? Json() : Json(opened.why);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json machine_json(const Config* config) {
  struct utsname name {};
  ::uname(&name);
  Json json = {{"system", fmt::format("{} {} {}", name.sysname, name.release, name.machine)}, {"user", ::geteuid()}, {"processors", processors()},
               {"usable_memory_bytes", usable_memory_bytes()}};
  if (config != nullptr) json["compiles_at_a_time"] = bounded_jobs(config->jobs, config->memory_bytes);
  return json;
}

/// Variables that look like ours and are none: a setting that was misspelt has no effect and no other message.
std::vector<std::string> unknown_variables(const std::vector<ConfigRow>& rows) {
  std::vector<std::string> unknown;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string text = *at;
    const std::string name = text.substr(0, text.find('='));
    if (name.rfind("W4MOE_", 0) != 0 || name.rfind("W4MOE_LOCKSTEP_", 0) == 0) continue;  // those of the lock-step device are for its debugging
    if (std::none_of(rows.begin(), rows.end(), [&](const ConfigRow& row) { return row.variable == name; })) unknown.push_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

Json examine(const Options& options, Console& console) {
  Json document = {{"schema", "w4moe.doctor/1"}, {"versions", versions_json()}, {"settings", Json::array()}};
  const Result<Config> config = resolve_config(kernel_options(options.kernels, console), process_environment);
  if (config) {
    for (const ConfigRow& row : config->rows) {
      document["settings"].push_back({{"name", row.name}, {"variable", row.variable}, {"value", row.value}, {"origin", row.origin}});
    }
    document["unknown_variables"] = unknown_variables(config->rows);
    for (const std::string& name : document["unknown_variables"].get<std::vector<std::string>>()) console.warning(name + " is set, and is no setting");
    document["cache"] = cache_json(*config, console);
    document["readonly_dirs"] = readonly_json(*config);
  } else {
    document["settings_problem"] = config.error().message;
    console.warning(config.error().message);
    document["cache"] = {{"path", nullptr}, {"state", "unknown"}, {"problem", config.error().message}};
  }
  document["machine"] = machine_json(config ? &*config : nullptr);
  document["nvrtc"] = nvrtc_json(config ? &*config : nullptr);
  const Machine machine = look_at_machine();
  document["driver"] = {{"found", machine.driver != nullptr}, {"cuda_version", machine.driver != nullptr ? Json(machine.driver_version) : Json()},
                        {"problem", machine.why.empty() ? Json() : Json(machine.why)}};
  document["devices"] = devices_json(machine);
  document["warnings"] = console.warnings();
  return document;
}

std::string shown(const Json& value) { return value.is_string() ? value.get<std::string>() : value.is_null() ? "unknown" : value.dump(); }

std::string as_text(const Json& d) {
  std::string text = "versions\n";
  for (const auto& [name, value] : d["versions"].items()) text += fmt::format("  {:<18} {}\n", name, shown(value));
  text += "settings\n";
  for (const Json& row : d["settings"]) {
    text += fmt::format("  {:<18} {}  ({}; {})\n", shown(row["name"]), shown(row["value"]), shown(row["origin"]), shown(row["variable"]));
  }
  const auto section = [&](const char* name) {
    text += std::string(name) + "\n";
    for (const auto& [field, value] : d[name].items()) {
      if (!value.is_null()) text += fmt::format("  {:<18} {}\n", field, shown(value));
    }
  };
  section("cache");
  for (const Json& row : d.value("readonly_dirs", Json::array())) {
    text += fmt::format("  {:<18} {} ({}{})\n", "read only", shown(row["path"]), row["problem"].is_null() ? shown(row["entries"]) + " entries" : shown(row["state"]) + ": ",
                        row["problem"].is_null() ? std::string() : shown(row["problem"]));
  }
  section("machine");
  section("nvrtc");
  section("driver");
  text += "devices\n";
  if (d["devices"].empty()) text += "  none\n";
  int ordinal = 0;
  for (const Json& device : d["devices"]) {
    text += fmt::format("  cuda:{} {}, compute capability {}", ordinal++, shown(device["name"]), shown(device["compute_capability"]));
    text += device.contains("arch") ? fmt::format(", {}, {} SMs\n", shown(device["arch"]), shown(device["sms"])) : fmt::format(": {}\n", shown(device["problem"]));
  }
  return text;
}

}  // namespace

Result<int> cmd_doctor(const Options& options, Console& console) {
  const Json document = examine(options, console);
  console.result(console.json() ? document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : as_text(document));
  return kDone;  // a report of what is missing is no failure
}

}  // namespace w4moe::cli
