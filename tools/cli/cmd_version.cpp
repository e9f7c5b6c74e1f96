#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cache/entry.hpp"
#include "contract/args.h"
#include "contract/layout_id.h"
#include "generator/manifest/manifest.hpp"
#include "revision.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/version.hpp"

namespace w4moe::cli {

std::vector<std::pair<std::string, std::string>> versions() {
  return {
      {"version", W4MOE_VERSION},
      {"revision", W4MOE_REVISION},
      {"layout_version", std::to_string(kLayoutVersion)},
      {"args_version", std::to_string(kArgsVersion)},
      {"cache_schema", std::to_string(cache::kEntryVersion)},
      {"manifest_schema", std::to_string(kManifestSchemaVersion)},
  };
}

nlohmann::ordered_json versions_json() {
  nlohmann::ordered_json json;
  for (const auto& [name, value] : versions()) {
    if (name == "version") {
      json[name] = value;
    } else if (name == "revision") {
      json[name] = value.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
    } else {
      json[name] = std::stoi(value);
    }
  }
  return json;
}

Result<int> cmd_version(const Options&, Console& console) {
  if (console.json()) {
    nlohmann::ordered_json document = {{"schema", "w4moe.version/1"}};
    document.update(versions_json());
    console.result(document.dump(2) + "\n");
    return kDone;
  }
  std::string text = fmt::format("w4moe {}\n", W4MOE_VERSION);
  for (const auto& [name, value] : versions()) {
    if (name != "version") text += fmt::format("{:<16} {}\n", name, value.empty() ? "unknown" : value);
  }
  console.result(text);
  return kDone;
}

}  // namespace w4moe::cli
