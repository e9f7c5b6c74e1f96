// A small layer, planned, and what it takes to run it on the fake driver.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/driver/device_memory.hpp"
#include "tests/fake_driver/fake_compiler.hpp"
#include "tests/fake_driver/fake_driver.hpp"
#include "tests/support/catch.hpp"
#include "w4moe/engine.hpp"

namespace w4moe::test {

inline Problem small_problem() {
  Problem p;
  p.name = "small";
  p.shape = Shape{256, 128, 8, 2, 64};
  p.format = kMxfp4;
  return p;
}

inline Plan plan_of(const Problem& problem, const PlanOptions& options = {}, Arch arch = Arch::sm_90a) {
  w4moe::Result<Plan> plan = make_plan(problem, named_device(arch), options);
  INFO((plan ? std::string() : plan.error().message));
  REQUIRE(plan.ok());
  return *plan;
}
inline Plan small_plan() { return plan_of(small_problem()); }

/// A value, or the test fails with the error's message.
template <class T>
T must(w4moe::Result<T> result) {
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.ok());
  return std::move(*result);
}
inline void must(const Status& status) {
  INFO((status ? std::string() : status.error().message));
  REQUIRE(status.ok());
}

/// The message of an error of this code; the test fails if there is none.
template <class R>
std::string error_of(const R& result, ErrorCode code) {
  REQUIRE_FALSE(result.ok());
  INFO(result.error().message);
  CHECK(static_cast<int>(result.error().code) == static_cast<int>(code));
  return result.error().message;
}

/// An engine on the fake driver and the fake compiler, in memory only, with a current context on device 0.
struct FakeWorld {
  explicit FakeWorld(std::vector<FakeDevice> devices = {FakeDevice{}}) : driver(std::move(devices)), context(driver.make_context(0)) {}

  EngineOptions options() {
    EngineOptions o;
    o.kernels.cache = CacheUse::off;
    o.kernels.readonly_dirs = std::vector<std::string>{};
    o.kernels.jit = JitMode::on;
    o.kernels.jobs = 2;
    o.kernels.log = [this](LogLevel, const std::string& message) {
      const std::lock_guard lock(log_mutex);
      log.push_back(message);
    };
    o.driver = &driver.table();
    o.compiler = compiler;
    return o;
  }
  Engine engine() { return must(Engine::create(options())); }

  std::mutex log_mutex;
  std::vector<std::string> log;
  FakeDriver driver;
  driver::Context context;
  std::shared_ptr<FakeCompiler> compiler = std::make_shared<FakeCompiler>();
};

/// Memory of one layer: weights with a right header, scratch of exactly the right size, inputs and output.
struct LayerMemory {
  LayerMemory(const driver::DriverTable& table, const Plan& plan, i64 extra_scratch = 0)
      : weights(must(driver::DeviceBuffer::allocate(table, plan.prepared_weight_bytes()))),
        scratch(must(driver::DeviceBuffer::allocate(table, plan.required_bytes() + extra_scratch))),
        x(must(driver::DeviceBuffer::allocate(table, strided(plan, plan.problem.shape.hidden, 2)))),
        out(must(driver::DeviceBuffer::allocate(table, strided(plan, plan.problem.shape.hidden, 2)))),
        ids(must(driver::DeviceBuffer::allocate(table, strided(plan, plan.problem.shape.topk, 8)))),
        router(must(driver::DeviceBuffer::allocate(table, strided(plan, plan.problem.shape.topk, 4)))) {
    const WeightHeader header = make_weight_header(plan.weights);
    must(weights.upload(&header, sizeof(header)));
  }

  RunArgs args(i64 tokens) const {
    RunArgs a;
    a.tokens = tokens;
    a.x = x.data();
    a.ids = ids.data();
    a.router_weights = router.data();
    a.out = out.data();
    return a;
  }

  static i64 strided(const Plan& plan, i64 width, i64 elem_bytes) { return std::max<i64>(plan.problem.shape.max_tokens, 1) * width * elem_bytes; }

  driver::DeviceBuffer weights, scratch, x, out, ids, router;
};

}  // namespace w4moe::test
