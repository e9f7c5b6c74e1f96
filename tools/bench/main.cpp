// The cells of docs/benchmarks/README.md: all benchmark shapes as the peers were measured, plain silu(gate) * up without biases.
// One layer of one's own: `w4moe bench`. Both measure with tools/bench/measure.cpp.
//
//   w4moe-bench --routing FOLDER [--tokens 1,4,...] [--eager] [--json FILE] [MODEL ...]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "generator/manifest/presets.hpp"
#include "tools/bench/rows.hpp"

namespace {

using namespace w4moe;
using Json = nlohmann::ordered_json;

template <class T>
T must(w4moe::Result<T> r) {
  if (r) return std::move(*r);
  std::fprintf(stderr, "error: %s\n", r.error().message.c_str());
  std::exit(1);
}

Problem as_measured(const std::string& model, i64 max_tokens) {
  Problem problem = must(preset(model, 1, 1, max_tokens));
  problem.activation = Activation::silu;
  problem.params = default_params(problem.activation);
  problem.has_bias = false;
  return problem;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Settings settings;
  settings.eager = false;
  std::string json_path;
  std::vector<i64> tokens{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  std::vector<std::string> models;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--routing" && i + 1 < argc) {
      settings.routing_folder = argv[++i];
    } else if (arg == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (arg == "--eager") {
      settings.eager = true;
    } else if (arg == "--tokens" && i + 1 < argc) {
      tokens.clear();
      std::stringstream list(argv[++i]);
      for (std::string part; std::getline(list, part, ',');) tokens.push_back(std::stoll(part));
    } else {
      models.push_back(arg);
    }
  }
  if (settings.routing_folder.empty() || tokens.empty()) {
    std::fprintf(stderr, "usage: w4moe-bench --routing FOLDER [--tokens 1,4,...] [--eager] [--json FILE] [MODEL ...]\n");
    return 2;
  }
  if (models.empty()) models = {"gpt-oss-120b", "dsv4-flash", "qwen3-30b-a3b", "seed-case", "dsv3-tp8", "mixtral-like"};
  const driver::DriverTable& table = *must(driver::system_driver());
  const auto context = must(driver::PrimaryContext::open(table, 0));
  Engine engine = must(Engine::create());
  const DeviceSpec device = must(engine.device());
  settings.roofs = bench::roofs_of(device.name, {});
  if (!settings.roofs.known()) settings.roofs = bench::kH200Roofs;  // the baseline's GPU defines the floor
  Json rows = Json::array();
  for (const std::string& model : models) {
    const Plan plan = must(make_plan(as_measured(model, *std::max_element(tokens.begin(), tokens.end())), device));
    must(engine.build(plan));
    bench::LayerBench layer = must(bench::LayerBench::make(table, engine, plan, settings));
    for (const i64 m : tokens) {
      const bench::Row row = must(layer.measure(m));
      rows.push_back(bench::json_of(row));
      fmt::print("{:<14} m={:<5} active {:>3} floor {:>8.1f} us {:>8.1f} us  {:.3f} of floor  {}\n", model, m, row.active_experts, row.floor_us.value_or(0), row.us_graph,
                 row.fraction_of_floor.value_or(0), row.variant);
      std::fflush(stdout);
    }
  }
  if (!json_path.empty()) {
    const Json roofs = {{"read_gbps", settings.roofs.read_gbps}, {"tflops", settings.roofs.tflops}};
    std::ofstream out(json_path);
    out << Json{{"gpu", device.name}, {"roofs", roofs}, {"rows", rows}}.dump(1) << "\n";
    if (!out.flush()) {
      std::fprintf(stderr, "error: cannot write %s\n", json_path.c_str());
      return 1;
    }
  }
  return 0;
}
