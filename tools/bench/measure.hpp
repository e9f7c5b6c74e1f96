// Times a layer on a CUDA device through the public API, as the peers' baseline was taken: K launches with rotating weight sets in
// one CUDA graph, so that more bytes than three times the L2 pass between two uses of a set; medians over replays.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/driver/device_memory.hpp"
#include "tools/bench/roofs.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::bench {

/// Those that are given, else those of a device that is known by its name, else none.
Roofs roofs_of(const std::string& device_name, const Roofs& given);

struct Settings {
  u64 seed = 1;
  Roofs roofs;
  std::string routing_folder;        ///< files of tools/bench/make_routing.py; empty: made-up routing
  bool eager = true;                 ///< also time the launches one by one
  std::function<bool()> cancelled;   ///< asked before each timing
};

/// One cell.
struct Row {
  std::string shape;
  i64 tokens = 0;
  double us_graph = 0;
  std::optional<double> us_eager;
  i64 active_experts = 0;
  double weight_bytes = 0;   ///< codes, scales and zero points of the experts that have tokens, without padding
  double flops = 0;
  std::optional<double> floor_us, fraction_of_floor;
  std::string variant;       ///< the kernels
  bool cold = true;          ///< false where memory did not hold enough weight sets
  i64 scratch_bytes = 0;
};

/// A layer with made-up weights in the current context, its plan's kernels built.
class LayerBench {
 public:
  /// Packs and uploads. Engine and table must outlive it.
  static Result<LayerBench> make(const driver::DriverTable& table, const Engine& engine, const Plan& plan, const Settings& settings);
  Result<Row> measure(i64 tokens);

 private:
  LayerBench(const driver::DriverTable& table, const Engine& engine, const Plan& plan, const Settings& settings)
      : table_(&table), engine_(&engine), plan_(plan), settings_(settings) {}
  Status add_set(const void* packed);

  const driver::DriverTable* table_;
  const Engine* engine_;
  Plan plan_;
  Settings settings_;
  driver::DeviceBuffer scratch_;
  std::vector<driver::DeviceBuffer> sets_;
  std::vector<Binding> bindings_;
};

}  // namespace w4moe::bench
