#include "tools/bench/measure.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/bench/routing.hpp"
#include "tools/device/device_tensors.hpp"
#include "tools/device/launched_kernels.hpp"
#include "tools/device/prepared_bytes.hpp"

namespace w4moe::bench {
namespace {

// Between two uses of a set of weights so many bytes of others are read that no cache keeps it: three times the L2 of an H200.
constexpr double kColdBytes = 200e6;
constexpr i64 kMaxSets = 256;
constexpr double kMaxSetsBytes = 16e9;
constexpr int kWarmUps = 3;

/// Median of `timings` of `once` in microseconds, by events on the stream.
template <class Once>
Result<double> median_us(const driver::DriverTable& table, driver::Stream stream, int timings, const Settings& settings, Once once) {
  const Result<driver::OwnedEvent> begin = driver::OwnedEvent::create(table);
  const Result<driver::OwnedEvent> end = driver::OwnedEvent::create(table);
  if (!begin) return begin.error();
  if (!end) return end.error();
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + timings; ++i) {
    if (settings.cancelled && settings.cancelled()) return Error{ErrorCode::not_prepared, "interrupted"};
    if (Status s = begin->record(stream); !s) return s.error();
    if (Status s = once(); !s) return s.error();
    if (Status s = end->record(stream); !s) return s.error();
    if (Status s = end->synchronize(); !s) return s.error();
    const Result<float> ms = end->since(*begin);
    if (!ms) return ms.error();
    if (i >= kWarmUps) times.push_back(*ms * 1e3);
  }
  std::nth_element(times.begin(), times.begin() + timings / 2, times.end());
  return times[static_cast<std::size_t>(timings / 2)];
}

/// Bytes that describe one expert's matrices: codes, scales and zero points.
double expert_bytes(const Problem& problem) {
  const Shape& shape = problem.shape;
  const QuantFormat& format = problem.format;
  const double per_group = static_cast<double>(format.scale_bytes()) + (format.has_zero_point ? 0.5 : 0);
  const auto matrix = [&](i64 rows, i64 k) { return static_cast<double>(rows) * (static_cast<double>(k) / 2 + static_cast<double>(format.groups(k)) * per_group); };
  return (is_gated(problem.activation) ? 2 : 1) * matrix(shape.intermediate, shape.hidden) + matrix(shape.hidden, shape.intermediate);
}

}  // namespace

Roofs roofs_of(const std::string& device_name, const Roofs& given) {
  const Roofs known = device_name.find("H200") != std::string::npos ? kH200Roofs : Roofs{};
  return {given.read_gbps > 0 ? given.read_gbps : known.read_gbps, given.tflops > 0 ? given.tflops : known.tflops};
}

Result<LayerBench> LayerBench::make(const driver::DriverTable& table, const Engine& engine, const Plan& plan, const Settings& settings) {
  LayerBench layer(table, engine, plan, settings);
  Result<driver::DeviceBuffer> scratch = driver::DeviceBuffer::allocate(table, plan.required_bytes());
  if (!scratch) return scratch.error();
  layer.scratch_ = std::move(*scratch);
  SyntheticOptions synthetic;
  synthetic.seed = settings.seed;
  if (!is_gated(plan.problem.activation)) synthetic.gate_up_order = GateUpOrder::separate;
  const SyntheticLayer made = make_layer(plan.problem, synthetic);
  const Result<PreparedBytes> packed = PreparedBytes::pack(plan.problem, made.source);
  if (!packed) return packed.error();
  if (Status s = layer.add_set(packed->bytes().data()); !s) return s.error();
  return layer;
}

/// Uploads a set of weights, or copies the first one.
Status LayerBench::add_set(const void* packed) {
  Result<driver::DeviceBuffer> weights =
      packed != nullptr ? upload(*table_, packed, plan_.prepared_weight_bytes()) : driver::DeviceBuffer::allocate(*table_, plan_.prepared_weight_bytes());
  if (!weights) return weights.error();
  if (packed == nullptr) {
    const auto code = table_->memcpy_dtod_async(reinterpret_cast<driver::DevicePtr>(weights->data()), reinterpret_cast<driver::DevicePtr>(sets_.front().data()),
                                                static_cast<std::size_t>(weights->bytes()), nullptr);
    if (Status s = driver::check(*table_, code, "cuMemcpyDtoDAsync"); !s) return s;
    if (Status s = driver::check(*table_, table_->ctx_synchronize(), "cuCtxSynchronize"); !s) return s;
  }
  const Result<PreparedWeights> adopted = engine_->adopt(weights->data(), weights->bytes());
  if (!adopted) return adopted.error();
  Result<Binding> binding = engine_->bind(plan_, *adopted, scratch_.data(), scratch_.bytes());
  if (!binding) return binding.error();
  sets_.push_back(std::move(*weights));
  bindings_.push_back(std::move(*binding));
  return {};
}

Result<Row> LayerBench::measure(i64 tokens) {
  const Shape& shape = plan_.problem.shape;
  SyntheticOptions synthetic;
  synthetic.seed = settings_.seed;
  SyntheticInputs inputs = make_inputs(plan_.problem, tokens, synthetic);
  if (!settings_.routing_folder.empty()) {
    if (Status s = read_routing(settings_.routing_folder, shape, tokens, inputs); !s) return s.error();
  }
  Row row;
  row.shape = plan_.problem.name;
  row.tokens = tokens;
  row.active_experts = static_cast<i64>(std::set<i32>(inputs.ids.begin(), inputs.ids.end()).size());
  row.weight_bytes = static_cast<double>(row.active_experts) * expert_bytes(plan_.problem);
  const double projections = is_gated(plan_.problem.activation) ? 3 : 2;
  row.flops = 2 * projections * static_cast<double>(shape.pairs(tokens)) * static_cast<double>(shape.hidden) * static_cast<double>(shape.intermediate);

  const auto wanted = static_cast<i64>(std::ceil(kColdBytes / row.weight_bytes));
  const auto fitting = static_cast<i64>(kMaxSetsBytes / static_cast<double>(plan_.prepared_weight_bytes()));
  const i64 sets = std::clamp<i64>(std::min(wanted, fitting), 1, kMaxSets);
  while (static_cast<i64>(bindings_.size()) < sets) {
    if (Status s = add_set(nullptr); !s) return s.error();
  }
  const i64 least = tokens <= 64 ? 16 : tokens <= 256 ? 8 : tokens <= 1024 ? 4 : 2;
  const i64 launches = align_up(least, sets);
  const int timings = tokens <= 256 ? 20 : 8;

  const Result<DeviceTensors> tensors = upload_inputs(*table_, plan_.problem, inputs.inputs);
  if (!tensors) return tensors.error();
  const Result<driver::OwnedStream> stream = driver::OwnedStream::create(*table_);
  if (!stream) return stream.error();
  const auto enqueue = [&]() -> Status {
    for (i64 i = 0; i < launches; ++i) {
      if (Status s = engine_->run(bindings_[static_cast<std::size_t>(i % sets)], stream->handle(), tensors->args); !s) return s;
    }
    return {};
  };
  if (Status s = engine_->init_scratch(bindings_.front(), stream->handle()); !s) return s.error();
  if (settings_.eager) {
    const Result<double> eager = median_us(*table_, stream->handle(), timings, settings_, enqueue);
    if (!eager) return eager.error();
    row.us_eager = *eager / static_cast<double>(launches);
  }
  const Result<driver::OwnedGraph> graph = driver::OwnedGraph::capture(*table_, stream->handle(), enqueue);
  if (!graph) return graph.error();
  const Result<double> replay = median_us(*table_, stream->handle(), timings, settings_, [&] { return graph->launch(stream->handle()); });
  if (!replay) return replay.error();
  row.us_graph = *replay / static_cast<double>(launches);
  if (settings_.roofs.known()) {
    row.floor_us = std::max(row.weight_bytes / (settings_.roofs.read_gbps * 1e3), row.flops / (settings_.roofs.tflops * 1e6));
    if (row.us_graph > 0) row.fraction_of_floor = *row.floor_us / row.us_graph;
  }
  row.variant = launched_kernels(plan_, tokens);
  row.cold = sets >= wanted;
  row.scratch_bytes = plan_.required_bytes();
  return row;
}

}  // namespace w4moe::bench
