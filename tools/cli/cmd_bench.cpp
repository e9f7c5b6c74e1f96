#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"
#include "runtime/driver/current_device.hpp"
#include "tools/bench/rows.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/problem_source.hpp"
#include "tools/cli/run_layer.hpp"

namespace w4moe::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string as_text(const bench::Row& row) {
  std::string text = fmt::format("{:<16} m {:<6} {:>9.1f} us in a graph, {:>9.1f} us eagerly, {:>4} experts", row.shape, row.tokens, row.us_graph, row.us_eager.value_or(0),
                                 row.active_experts);
  if (row.fraction_of_floor) text += fmt::format(", {:.3f} of the floor", *row.fraction_of_floor);
  return text + (row.cold ? "" : ", weights partly in the L2") + ", " + row.variant + "\n";
}

/// Writes the page of the rows, beside those of the peers where they are given.
Status write_page(bench::Page page, const BenchFlags& flags) {
  if (!flags.peers.empty()) {
    const Result<std::string> peers = read_text(flags.peers);
    if (!peers) return peers.error();
    if (Status s = bench::add_peers(*peers, flags.peers, page); !s) return s;
  }
  if (Status s = bench::check_page(page); !s) return s;
  return write_text(flags.html, bench::html_of(page));
}

/// --rows: the page of what was measured before; no device is asked.
Result<int> draw_rows(const BenchFlags& flags, Console& console) {
  if (flags.html.empty()) return invalid_argument("--rows without --html: there is nothing to do with them");
  bench::Page page;
  for (const std::string& path : flags.rows) {
    const Result<std::string> text = read_text(path);
    if (!text) return text.error();
    Result<bench::Page> part = bench::read_rows(*text, path);
    if (!part) return part.error();
    std::vector<bench::PageRow> rows = std::move(page.rows);
    rows.insert(rows.end(), part->rows.begin(), part->rows.end());
    if (page.about.empty()) page = std::move(*part);
    page.rows = std::move(rows);
  }
  if (flags.roofs.read_gbps > 0) page.roofs.read_gbps = flags.roofs.read_gbps;
  if (flags.roofs.tflops > 0) page.roofs.tflops = flags.roofs.tflops;
  const std::size_t count = page.rows.size();
  if (Status s = write_page(std::move(page), flags); !s) return s.error();
  const Json document = {{"schema", "w4moe.bench/1"}, {"html", flags.html}, {"drawn", count}, {"warnings", console.warnings()}};
  console.result(console.json() ? document.dump(2) + "\n" : fmt::format("{}: {} cells\n", flags.html, count));
  return kDone;
}

}  // namespace

Result<int> cmd_bench(const Options& options, Console& console) {
  const BenchFlags& flags = options.bench;
  if (!flags.rows.empty()) return draw_rows(flags, console);
  if (!flags.peers.empty() && flags.html.empty()) return invalid_argument("--peers without --html: they are for the page alone");
  if (flags.tokens.empty()) return invalid_argument("--tokens is required (or --rows, for a page of what was measured before)");
  const Result<DeviceChoice> device = choose_device(options.run.device.empty() ? "cuda:0" : options.run.device);
  if (!device) return device.error();
  if (device->kind != DeviceKind::cuda) return unsupported("--device {}: kernels are timed on a GPU only (accepted: cuda:N)", options.run.device);
  const i64 most = *std::max_element(flags.tokens.begin(), flags.tokens.end());
  const Result<Problem> problem = problem_from(options.problem, most);
  if (!problem) return problem.error();
  if (most > problem->shape.max_tokens) return invalid_argument("--tokens {}: more than --max-tokens {}", most, problem->shape.max_tokens);
  const Result<const driver::DriverTable*> table = driver::system_driver();
  if (!table) return table.error();
  const Result<driver::PrimaryContext> context = driver::PrimaryContext::open(**table, device->ordinal);
  if (!context) return context.error();
  EngineOptions engine_options;
  engine_options.kernels = kernel_options(options.kernels, console);
  Result<Engine> engine = Engine::create(std::move(engine_options));
  if (!engine) return engine.error();
  const Result<Plan> plan = plan_on_device(*engine, *problem, device->ordinal, options.plan);
  if (!plan) return plan.error();
  bench::Settings settings;
  settings.seed = options.run.seed;
  settings.roofs = bench::roofs_of(plan->device.name, flags.roofs);
  settings.routing_folder = flags.routing;
  settings.cancelled = interrupted;
  if (!flags.html.empty() && !settings.roofs.known()) {
    return invalid_argument("--html on {}: --read-gbps and --tflops are needed, as nobody has said what it reaches", plan->device.name);
  }
  const InterruptGuard guard;
  LoadOptions load;
  load.cancelled = interrupted;
  if (const Result<BuildReport> built = engine->build(*plan, load); !built) return built.error();

  Result<bench::LayerBench> layer = bench::LayerBench::make(**table, *engine, *plan, settings);
  if (!layer) return layer.error();
  Json document = {{"schema", "w4moe.bench/1"}, {"device", device->name}, {"gpu", plan->device.name}, {"driver", driver::version_text(**table)}};
  document["roofs"] = settings.roofs.known() ? Json{{"read_gbps", settings.roofs.read_gbps}, {"tflops", settings.roofs.tflops}} : Json();
  document["rows"] = Json::array();
  std::string text;
  for (const i64 tokens : flags.tokens) {
    const Result<bench::Row> row = layer->measure(tokens);
    if (!row) return row.error();
    console.info(as_text(*row));
    text += as_text(*row);
    document["rows"].push_back(bench::json_of(*row));
  }
  document["warnings"] = console.warnings();
  if (!flags.html.empty()) {
    Result<bench::Page> page = bench::read_rows(document.dump(), "the rows");
    if (!page) return page.error();
    if (Status s = write_page(std::move(*page), flags); !s) return s.error();
  }
  console.result(console.json() ? document.dump(2) + "\n" : text);
  return kDone;
}

}  // namespace w4moe::cli
