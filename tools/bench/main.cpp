// Times whole layers on a CUDA device through the public API, as the peers' baseline was taken: K launches with rotating weight
// sets in one CUDA graph, so that more bytes than three times the L2 pass between two uses of a set; medians over replays.
//
//   w4moe-bench --routing FOLDER [--tokens 1,4,...] [--json FILE] [MODEL ...]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/manifest/presets.hpp"
#include "runtime/driver/device_memory.hpp"
#include "runtime/reference/synthetic.hpp"
#include "w4moe/engine.hpp"
#include "w4moe/weights.hpp"

namespace {

using namespace w4moe;
using Json = nlohmann::ordered_json;

constexpr double kReadGbPerS = 4617;      // ceilings of the baseline's GPU (H200), which define the floor
constexpr double kPeakTflops = 781;
constexpr double kColdBytes = 200e6;      // three times the L2

template <class T>
T must(w4moe::Result<T> r) {
  if (!r) {
    std::fprintf(stderr, "error: %s\n", r.error().message.c_str());
    std::exit(1);
  }
  return std::move(*r);
}
void must(const Status& s) {
  if (!s) {
    std::fprintf(stderr, "error: %s\n", s.error().message.c_str());
    std::exit(1);
  }
}

struct Routing {
  std::vector<i32> ids;
  std::vector<float> weights;
};

Routing read_routing(const std::string& folder, const Shape& s, i64 tokens) {
  const std::string path = fmt::format("{}/route_{}_{}_{}.bin", folder, s.experts, s.topk, tokens);
  std::ifstream in(path, std::ios::binary);
  Routing r;
  r.ids.resize(static_cast<std::size_t>(s.pairs(tokens)));
  r.weights.resize(r.ids.size());
  in.read(reinterpret_cast<char*>(r.ids.data()), static_cast<std::streamsize>(r.ids.size() * 4));
  in.read(reinterpret_cast<char*>(r.weights.data()), static_cast<std::streamsize>(r.weights.size() * 4));
  if (!in) {
    std::fprintf(stderr, "error: %s: missing or short (tools/bench/make_routing.py writes it)\n", path.c_str());
    std::exit(1);
  }
  return r;
}

/// Median time of a replay in microseconds.
double replay_us(const driver::DriverTable& t, const driver::OwnedGraph& graph, driver::Stream stream, int replays) {
  driver::Event begin = nullptr, end = nullptr;
  must(driver::check(t, t.event_create(&begin, 0), "cuEventCreate"));
  must(driver::check(t, t.event_create(&end, 0), "cuEventCreate"));
  std::vector<double> times;
  for (int i = 0; i < replays + 3; ++i) {
    must(driver::check(t, t.event_record(begin, stream), "cuEventRecord"));
    must(graph.launch(stream));
    must(driver::check(t, t.event_record(end, stream), "cuEventRecord"));
    must(driver::check(t, t.event_synchronize(end), "cuEventSynchronize"));
    float ms = 0;
    must(driver::check(t, t.event_elapsed_time(&ms, begin, end), "cuEventElapsedTime"));
    if (i >= 3) times.push_back(ms * 1e3);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class ModelBench {
 public:
  ModelBench(const driver::DriverTable& table, Engine& engine, Problem problem, std::string routing)
      : table_(table), engine_(engine), routing_(std::move(routing)), plan_(must(make_plan(problem, must(engine.device())))) {
    must(engine_.build(plan_));
    const SyntheticLayer layer = make_layer(problem);
    std::vector<std::byte> packed(static_cast<std::size_t>(plan_.prepared_weight_bytes()));
    PackOptions options;
    options.threads = 0;
    must(pack_on_cpu(problem, layer.source, packed, options));
    sets_.push_back(must(driver::DeviceBuffer::allocate(table_, plan_.prepared_weight_bytes())));
    must(sets_[0].upload(packed.data(), sets_[0].bytes()));
    scratch_ = must(driver::DeviceBuffer::allocate(table_, plan_.required_bytes()));
    add_binding();
    must(engine_.init_scratch(bindings_[0], nullptr));
    must(driver::check(table_, table_.ctx_synchronize(), "cuCtxSynchronize"));
  }

  Json measure(i64 tokens) {
    const Shape& s = plan_.problem.shape;
    const Routing routing = read_routing(routing_, s, tokens);
    const auto active = static_cast<i64>(std::set<i32>(routing.ids.begin(), routing.ids.end()).size());
    const double group = static_cast<double>(plan_.problem.format.group_size);
    const double elements = 3.0 * static_cast<double>(s.hidden * s.intermediate);
    const double weight_bytes = static_cast<double>(active) * elements * (0.5 + 1 / group);
    const double floor_us = std::max(weight_bytes / (kReadGbPerS * 1e3), 2.0 * static_cast<double>(s.pairs(tokens)) * elements / (kPeakTflops * 1e6));
    const int sets = std::max(1, static_cast<int>(std::ceil(kColdBytes / weight_bytes)));
    while (static_cast<int>(bindings_.size()) < sets) {
      sets_.push_back(must(driver::DeviceBuffer::allocate(table_, plan_.prepared_weight_bytes())));
      must(driver::check(table_, table_.memcpy_dtod_async(reinterpret_cast<driver::DevicePtr>(sets_.back().data()), reinterpret_cast<driver::DevicePtr>(sets_[0].data()),
                                                          static_cast<std::size_t>(sets_[0].bytes()), nullptr), "cuMemcpyDtoDAsync"));
      must(driver::check(table_, table_.ctx_synchronize(), "cuCtxSynchronize"));
      add_binding();
    }
    int launches = tokens <= 64 ? 16 : tokens <= 256 ? 8 : tokens <= 1024 ? 4 : 2;
    launches = (launches + sets - 1) / sets * sets;

    const SyntheticInputs inputs = make_inputs(plan_.problem, tokens);
    const i64 row_bytes = tokens * s.hidden * 2;
    const auto x = must(driver::DeviceBuffer::allocate(table_, row_bytes));
    const auto out = must(driver::DeviceBuffer::allocate(table_, row_bytes));
    const auto ids = must(driver::DeviceBuffer::allocate(table_, s.pairs(tokens) * 4));
    const auto weights = must(driver::DeviceBuffer::allocate(table_, s.pairs(tokens) * 4));
    must(x.upload(inputs.inputs.x, row_bytes));
    must(ids.upload(routing.ids.data(), ids.bytes()));
    must(weights.upload(routing.weights.data(), weights.bytes()));
    RunArgs args;
    args.tokens = tokens;
    args.x = x.data();
    args.ids = ids.data();
    args.router_weights = weights.data();
    args.out = out.data();

    const auto stream = must(driver::OwnedStream::create(table_));
    const auto graph = must(driver::OwnedGraph::capture(table_, stream.handle(), [&]() -> Status {
      for (int i = 0; i < launches; ++i) {
        if (Status st = engine_.run(bindings_[static_cast<std::size_t>(i % sets)], stream.handle(), args); !st) return st;
      }
      return {};
    }));
    const double us = replay_us(table_, graph, stream.handle(), tokens <= 256 ? 20 : 8) / launches;
    const Bucket& bucket = plan_.bucket_for(tokens);
    std::string variant;
    for (const int k : plan_.launched_by(bucket)) variant += (variant.empty() ? "" : "+") + plan_.kernels[static_cast<std::size_t>(k)].name;
    return {{"shape", plan_.problem.name}, {"m", tokens},          {"us_graph", us},
            {"active_experts", active},    {"weight_bytes", weight_bytes}, {"floor_us", floor_us},
            {"fraction_of_floor", floor_us / us}, {"gb_per_s", weight_bytes / us / 1e3}, {"variant", variant}};
  }

 private:
  void add_binding() {
    const PreparedWeights prepared = must(engine_.adopt(sets_.back().data(), sets_.back().bytes()));
    bindings_.push_back(must(engine_.bind(plan_, prepared, scratch_.data(), scratch_.bytes())));
  }

  const driver::DriverTable& table_;
  Engine& engine_;
  std::string routing_;
  Plan plan_;
  std::vector<driver::DeviceBuffer> sets_;
  driver::DeviceBuffer scratch_;
  std::vector<Binding> bindings_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string routing, json_path;
  std::vector<i64> tokens{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  std::vector<std::string> models;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--routing" && i + 1 < argc) {
      routing = argv[++i];
    } else if (arg == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (arg == "--tokens" && i + 1 < argc) {
      tokens.clear();
      std::stringstream list(argv[++i]);
      for (std::string part; std::getline(list, part, ',');) tokens.push_back(std::stoll(part));
    } else {
      models.push_back(arg);
    }
  }
  if (routing.empty()) {
    std::fprintf(stderr, "usage: w4moe-bench --routing FOLDER [--tokens 1,4,...] [--json FILE] [MODEL ...]\n");
    return 2;
  }
  if (models.empty()) models = {"gpt-oss-120b", "dsv4-flash", "qwen3-30b-a3b", "seed-case", "dsv3-tp8", "mixtral-like"};
  const driver::DriverTable& table = *must(driver::system_driver());
  const auto context = must(driver::PrimaryContext::open(table, 0));
  Engine engine = must(Engine::create());
  Json rows = Json::array();
  for (const std::string& model : models) {
    Problem problem = must(preset(model, 1, 1, *std::max_element(tokens.begin(), tokens.end())));
    // As the baseline was measured: plain silu(gate) * up, no biases.
    problem.activation = Activation::silu;
    problem.params = default_params(problem.activation);
    problem.has_bias = false;
    ModelBench bench(table, engine, problem, routing);
    for (const i64 m : tokens) {
      rows.push_back(bench.measure(m));
      const Json& r = rows.back();
      std::printf("%-14s m=%-5lld active %3lld floor %8.1f us %8.1f us  %.3f of floor  %s\n", model.c_str(), static_cast<long long>(m),
                  r["active_experts"].get<long long>(), r["floor_us"].get<double>(), r["us_graph"].get<double>(), r["fraction_of_floor"].get<double>(),
                  r["variant"].get<std::string>().c_str());
      std::fflush(stdout);
    }
  }
  if (!json_path.empty()) std::ofstream(json_path) << Json{{"device", must(engine.device()).name}, {"rows", rows}}.dump(1) << "\n";
  return 0;
}
