#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"
#include "generator/render/variant_header.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/problem_source.hpp"

namespace w4moe::cli {
namespace {

struct Rendered {
  std::string name;
  KernelSource source;
};

Result<std::vector<Rendered>> render_plan(const Plan& plan, const std::string& only) {
  std::vector<Rendered> all;
  std::string names;
  for (const PlannedKernel& kernel : plan.kernels) {
    names += (names.empty() ? "" : ", ") + kernel.name;
    if (only.empty() || only == kernel.name) all.push_back({kernel.name, render(kernel.variant)});
  }
  if (all.empty()) return invalid_argument("--kernel {}: the plan has no such kernel (accepted: {})", only, names);
  return all;
}

Status write_all(const std::vector<Rendered>& kernels, const std::string& folder) {
  if (Status s = make_folder(folder); !s) return s;
  for (const Rendered& kernel : kernels) {
    const std::string base = fmt::format("{}/{}", folder, kernel.name);
    if (Status s = write_text(base + ".h", kernel.source.variant_text); !s) return s;
    if (Status s = write_text(base + ".cu", kernel.source.entry_text); !s) return s;
  }
  return {};
}

std::string as_json(const std::vector<Rendered>& kernels, const std::string& folder) {
  using Json = nlohmann::ordered_json;
  Json document = {{"schema", "w4moe.render/1"}, {"header_name", kVariantHeaderName}, {"kernels", Json::array()}};
  for (const Rendered& kernel : kernels) {
    Json row = {{"name", kernel.name}, {"entry", kernel.source.entry_name}, {"description", kernel.source.description}};
    if (folder.empty()) {
      row["header"] = kernel.source.variant_text;
      row["source"] = kernel.source.entry_text;
    } else {
      row["header_file"] = fmt::format("{}/{}.h", folder, kernel.name);
      row["source_file"] = fmt::format("{}/{}.cu", folder, kernel.name);
    }
    document["kernels"].push_back(std::move(row));
  }
  return document.dump(2) + "\n";
}

std::string as_text(const std::vector<Rendered>& kernels, const std::string& folder) {
  std::string text;
  for (const Rendered& kernel : kernels) {
    if (!folder.empty()) {
      text += fmt::format("{0}/{1}.h\n{0}/{1}.cu\n", folder, kernel.name);
      continue;
    }
    text += fmt::format("// ---- {}: {} ({})\n{}", kernel.name, kVariantHeaderName, kernel.source.description, kernel.source.variant_text);
    text += fmt::format("// ---- {}: {}.cu\n{}\n", kernel.name, kernel.source.entry_name, kernel.source.entry_text);
  }
  return text;
}

}  // namespace

Result<int> cmd_render(const Options& options, Console& console) {
  const Result<Plan> plan = plan_from(options);
  if (!plan) return plan.error();
  const Result<std::vector<Rendered>> kernels = render_plan(*plan, options.render.kernel);
  if (!kernels) return kernels.error();
  const std::string& folder = options.render.output;
  if (!folder.empty()) {
    if (Status s = write_all(*kernels, folder); !s) return s.error();
  }
  console.result(console.json() ? as_json(*kernels, folder) : as_text(*kernels, folder));
  return kDone;
}

}  // namespace w4moe::cli
