#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"
#include "runtime/driver/current_device.hpp"
#include "runtime/reference/synthetic.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/device_tensors.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/packed_source.hpp"
#include "tools/cli/problem_source.hpp"
#include "tools/cli/run_layer.hpp"

namespace w4moe::cli {
namespace {

using driver::DeviceBuffer;
using Json = nlohmann::ordered_json;

// Between two uses of a set of weights so many bytes of others are read that no cache keeps it: three times the L2 of an H200.
constexpr double kColdBytes = 200e6;
constexpr i64 kMaxSets = 256;
constexpr double kMaxSetsBytes = 16e9;
constexpr int kWarmUps = 3;
constexpr int kTimings = 20;

/// Median of the timings of `once` in microseconds, by events on the stream.
template <class Once>
Result<double> median_us(const driver::DriverTable& table, driver::Stream stream, Once once) {
  const Result<driver::OwnedEvent> begin = driver::OwnedEvent::create(table);
  const Result<driver::OwnedEvent> end = driver::OwnedEvent::create(table);
  if (!begin) return begin.error();
  if (!end) return end.error();
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kTimings; ++i) {
    if (interrupted()) return Error{ErrorCode::not_prepared, "interrupted"};
    if (Status s = begin->record(stream); !s) return s.error();
    if (Status s = once(); !s) return s.error();
    if (Status s = end->record(stream); !s) return s.error();
    if (Status s = end->synchronize(); !s) return s.error();
    const Result<float> ms = end->since(*begin);
    if (!ms) return ms.error();
    if (i >= kWarmUps) times.push_back(*ms * 1e3);
  }
  std::nth_element(times.begin(), times.begin() + kTimings / 2, times.end());
  return times[kTimings / 2];
}

/// A built layer with as many copies of its weights as cold timings take.
struct BenchLayer {
  const driver::DriverTable* table = nullptr;
  const Engine* engine = nullptr;
  const Plan* plan = nullptr;
  DeviceBuffer scratch;
  std::vector<DeviceBuffer> sets;
  std::vector<Binding> bindings;

  Status add_set(const void* packed) {
    Result<DeviceBuffer> weights = packed != nullptr ? upload(*table, packed, plan->prepared_weight_bytes()) : DeviceBuffer::allocate(*table, plan->prepared_weight_bytes());
    if (!weights) return weights.error();
    if (packed == nullptr) {
      const auto code = table->memcpy_dtod_async(reinterpret_cast<driver::DevicePtr>(weights->data()), reinterpret_cast<driver::DevicePtr>(sets.front().data()),
                                                 static_cast<std::size_t>(weights->bytes()), nullptr);
      if (Status s = driver::check(*table, code, "cuMemcpyDtoDAsync"); !s) return s;
      if (Status s = driver::check(*table, table->ctx_synchronize(), "cuCtxSynchronize"); !s) return s;
    }
    const Result<PreparedWeights> adopted = engine->adopt(weights->data(), weights->bytes());
    if (!adopted) return adopted.error();
    Result<Binding> binding = engine->bind(*plan, *adopted, scratch.data(), scratch.bytes());
    if (!binding) return binding.error();
    sets.push_back(std::move(*weights));
    bindings.push_back(std::move(*binding));
    return {};
  }
};

/// The least time that the device's memory and tensor cores allow; null where nobody has said what they reach.
Json floor_of(const BenchFlags& flags, const std::string& device, double weight_bytes, double flops) {
  const bool h200 = device.find("H200") != std::string::npos;  // measured, docs/benchmarks/README.md
  const double read_gbps = flags.read_gbps > 0 ? flags.read_gbps : h200 ? 4617 : 0;
  const double tflops = flags.tflops > 0 ? flags.tflops : h200 ? 781 : 0;
  if (read_gbps <= 0 || tflops <= 0) return nullptr;
  return std::max(weight_bytes / (read_gbps * 1e3), flops / (tflops * 1e6));
}

Result<Json> measure(BenchLayer& layer, const Options& options, i64 tokens) {
  const Plan& plan = *layer.plan;
  const Shape& shape = plan.problem.shape;
  SyntheticOptions synthetic;
  synthetic.seed = options.run.seed;
  const SyntheticInputs inputs = make_inputs(plan.problem, tokens, synthetic);
  const auto active = static_cast<double>(std::set<i32>(inputs.ids.begin(), inputs.ids.end()).size());
  const double weight_bytes = active * static_cast<double>(plan.prepared_weight_bytes()) / static_cast<double>(shape.experts);
  const double projections = is_gated(plan.problem.activation) ? 3 : 2;
  const double flops = 2 * projections * static_cast<double>(shape.pairs(tokens)) * static_cast<double>(shape.hidden) * static_cast<double>(shape.intermediate);

  const auto wanted = static_cast<i64>(std::ceil(kColdBytes / weight_bytes));
  const auto fitting = static_cast<i64>(kMaxSetsBytes / static_cast<double>(plan.prepared_weight_bytes()));
  const i64 sets = std::clamp<i64>(std::min(wanted, fitting), 1, kMaxSets);
  while (static_cast<i64>(layer.bindings.size()) < sets) {
    if (Status s = layer.add_set(nullptr); !s) return s.error();
  }
  const i64 least = tokens <= 64 ? 16 : tokens <= 1024 ? 4 : 2;
  const i64 launches = align_up(least, sets);

  const Result<DeviceTensors> tensors = upload_inputs(*layer.table, plan.problem, inputs.inputs);
  if (!tensors) return tensors.error();
  const Result<driver::OwnedStream> stream = driver::OwnedStream::create(*layer.table);
  if (!stream) return stream.error();
  const auto enqueue = [&]() -> Status {
    for (i64 i = 0; i < launches; ++i) {
      if (Status s = layer.engine->run(layer.bindings[static_cast<std::size_t>(i % sets)], stream->handle(), tensors->args); !s) return s;
    }
    return {};
  };
  if (Status s = layer.engine->init_scratch(layer.bindings.front(), stream->handle()); !s) return s.error();
  const Result<double> eager = median_us(*layer.table, stream->handle(), enqueue);
  if (!eager) return eager.error();
  const Result<driver::OwnedGraph> graph = driver::OwnedGraph::capture(*layer.table, stream->handle(), enqueue);
  if (!graph) return graph.error();
  const Result<double> replay = median_us(*layer.table, stream->handle(), [&] { return graph->launch(stream->handle()); });
  if (!replay) return replay.error();

  const double us = *replay / static_cast<double>(launches);
  const Json floor_us = floor_of(options.bench, plan.device.name, weight_bytes, flops);
  Json row = {{"shape", plan.problem.name}, {"m", tokens}, {"us_graph", us}, {"us_eager", *eager / static_cast<double>(launches)},
              {"active_experts", static_cast<i64>(active)}, {"weight_bytes", weight_bytes}, {"floor_us", floor_us}};
  row["fraction_of_floor"] = floor_us.is_null() || us <= 0 ? Json() : Json(floor_us.get<double>() / us);
  row["variant"] = launched_kernels(plan, tokens);
  row["cold"] = sets >= wanted;
  row["scratch_bytes"] = plan.required_bytes();
  return row;
}

std::string as_text(const Json& row) {
  std::string text = fmt::format("{:<16} m {:<6} {:>9.1f} us in a graph, {:>9.1f} us eagerly, {:>4} experts", row["shape"].get<std::string>(), row["m"].get<i64>(),
                                 row["us_graph"].get<double>(), row["us_eager"].get<double>(), row["active_experts"].get<i64>());
  if (!row["fraction_of_floor"].is_null()) text += fmt::format(", {:.3f} of the floor", row["fraction_of_floor"].get<double>());
  return text + (row["cold"].get<bool>() ? "" : ", weights partly in the L2") + ", " + row["variant"].get<std::string>() + "\n";
}

}  // namespace

Result<int> cmd_bench(const Options& options, Console& console) {
  const Result<DeviceChoice> device = choose_device(options.run.device.empty() ? "cuda:0" : options.run.device);
  if (!device) return device.error();
  if (device->kind != DeviceKind::cuda) return unsupported("--device {}: kernels are timed on a GPU only (accepted: cuda:N)", options.run.device);
  const i64 most = *std::max_element(options.bench.tokens.begin(), options.bench.tokens.end());
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
  const InterruptGuard guard;
  LoadOptions load;
  load.cancelled = interrupted;
  if (const Result<BuildReport> built = engine->build(*plan, load); !built) return built.error();

  BenchLayer layer;
  layer.table = *table;
  layer.engine = &*engine;
  layer.plan = &*plan;
  Result<DeviceBuffer> scratch = DeviceBuffer::allocate(**table, plan->required_bytes());
  if (!scratch) return scratch.error();
  layer.scratch = std::move(*scratch);
  {
    SyntheticOptions synthetic;
    synthetic.seed = options.run.seed;
    if (!is_gated(problem->activation)) synthetic.gate_up_order = GateUpOrder::separate;
    const SyntheticLayer made = make_layer(*problem, synthetic);
    const Result<PreparedBytes> packed = PreparedBytes::pack(*problem, made.source);
    if (!packed) return packed.error();
    if (Status s = layer.add_set(packed->bytes().data()); !s) return s.error();
  }
  Json document = {{"schema", "w4moe.bench/1"}, {"device", device->name}, {"gpu", plan->device.name}, {"driver", driver::version_text(**table)}, {"rows", Json::array()}};
  std::string text;
  for (const i64 tokens : options.bench.tokens) {
    const Result<Json> row = measure(layer, options, tokens);
    if (!row) return row.error();
    console.info(as_text(*row));
    text += as_text(*row);
    document["rows"].push_back(*row);
  }
  document["warnings"] = console.warnings();
  console.result(console.json() ? document.dump(2) + "\n" : text);
  return kDone;
}

}  // namespace w4moe::cli
