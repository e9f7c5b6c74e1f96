// The C interface on the fake driver: a small layer from its C structures to a binding.
#pragma once

#include <string>

#include "runtime/capi/handles.hpp"
#include "tests/unit/runtime/small_plan.hpp"

namespace w4moe::test {

inline w4moe_problem c_problem() {
  w4moe_problem problem;
  W4MOE_INIT(problem);
  problem.name = "small";
  problem.hidden = 256;
  problem.intermediate = 128;
  problem.experts = 8;
  problem.topk = 2;
  problem.max_tokens = 64;
  problem.format = "mxfp4";
  problem.activation = "silu";
  problem.dtype = W4MOE_DTYPE_BF16;
  return problem;
}

/// Checks a status and returns the thread's error text.
inline std::string c_error(w4moe_status is, w4moe_status expected) {
  const std::string text = w4moe_last_error();
  INFO(text);
  CHECK(std::string(w4moe_status_name(is)) == w4moe_status_name(expected));
  return text;
}

inline void c_ok(w4moe_status status) {
  INFO((status == W4MOE_OK ? "" : w4moe_last_error()));
  REQUIRE(status == W4MOE_OK);
}

/// A handle of the C interface with its destroy function.
template <class T, void (*destroy)(T*)>
struct Owned {
  T* handle = nullptr;
  Owned() = default;
  explicit Owned(T* made) : handle(made) {}
  Owned(Owned&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle, other.handle);
    return *this;
  }
  ~Owned() { destroy(handle); }
  operator T*() const { return handle; }
};
using OwnedEngine = Owned<w4moe_engine, w4moe_engine_destroy>;
using OwnedPlan = Owned<w4moe_plan, w4moe_plan_destroy>;
using OwnedBinding = Owned<w4moe_binding, w4moe_binding_destroy>;

/// An engine of the C interface on a world's driver and compiler, which have no place in w4moe_engine_options.
inline OwnedEngine c_engine(FakeWorld& world, int32_t device = W4MOE_DEVICE_CURRENT, int ordinal = 0) {
  return OwnedEngine(new w4moe_engine{must(capi::make_engine(world.options(), device, ordinal))});
}

inline OwnedPlan c_plan(const w4moe_engine* engine, const w4moe_problem& problem = c_problem()) {
  OwnedPlan plan;
  c_ok(w4moe_plan_create(engine, &problem, nullptr, &plan.handle));
  return plan;
}

inline w4moe_run_args c_args(const LayerMemory& memory, int64_t tokens) {
  w4moe_run_args args;
  W4MOE_INIT(args);
  args.tokens = tokens;
  args.x = memory.x.data();
  args.ids = memory.ids.data();
  args.router_weights = memory.router.data();
  args.out = memory.out.data();
  args.id_type = W4MOE_IDS_I32;
  args.router_dtype = W4MOE_DTYPE_F32;
  return args;
}

/// A layer that is built and bound.
struct CLayer {
  explicit CLayer(FakeWorld& w) : world(w), engine(c_engine(w)), plan(c_plan(engine)), memory(w.driver.table(), plan.handle->plan) {
    world.compiler->add(plan.handle->plan);
    c_ok(w4moe_engine_build(engine, plan, nullptr, nullptr));
    binding = bind();
  }
  OwnedBinding bind() const {
    w4moe_binding* made = nullptr;
    c_ok(w4moe_bind(engine, plan, memory.weights.data(), memory.weights.bytes(), memory.scratch.data(), memory.scratch.bytes(), &made));
    return OwnedBinding(made);
  }

  FakeWorld& world;
  OwnedEngine engine;
  OwnedPlan plan;
  LayerMemory memory;
  OwnedBinding binding;
};

}  // namespace w4moe::test
