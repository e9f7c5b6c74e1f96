// A small layer on the fake driver: built and bound.
#pragma once

#include <optional>

#include "tests/unit/runtime/small_plan.hpp"

namespace w4moe::test {

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A layer that is built and bound.
struct Layer {
  explicit Layer(FakeWorld& w, const Plan& p = small_plan(), EngineOptions options = {}) : world(w), plan(p), engine(make(w, std::move(options))) {
    world.compiler->add(plan);
    must(engine.build(plan));
    memory.emplace(world.driver.table(), plan);
    binding.emplace(bind());
  }
  static Engine make(FakeWorld& w, EngineOptions extra) {
    EngineOptions options = w.options();
    options.debug = extra.debug;
    return must(Engine::create(options));
  }
  Binding bind() const {
    const PreparedWeights weights = must(engine.adopt(memory->weights.data(), memory->weights.bytes()));
    return must(engine.bind(plan, weights, memory->scratch.data(), memory->scratch.bytes()));
  }

  FakeWorld& world;
  Plan plan;
  Engine engine;
  std::optional<LayerMemory> memory;
  std::optional<Binding> binding;
};

}  // namespace w4moe::test
