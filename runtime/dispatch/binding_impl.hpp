// What a Binding holds.
#pragma once

#include <memory>
#include <vector>

#include "runtime/dispatch/debug_guard.hpp"
#include "runtime/module/kernel_library.hpp"
#include "w4moe/engine.hpp"

namespace w4moe {

/// Immutable after bind(): runs from several threads read it at once.
struct Binding::Impl {
  std::shared_ptr<const Plan> plan;
  PreparedWeights weights;
  void* scratch = nullptr;
  i64 scratch_bytes = 0;
  const driver::DriverTable* table = nullptr;
  driver::CurrentContext context;
  std::vector<std::shared_ptr<const LoadedKernel>> kernels;  ///< parallel to plan->kernels
  std::vector<GuardZone> guards;                             ///< debug mode only

  /// Enqueues every chunk of a run whose arguments are checked. The binding's context is current. Allocates nothing.
  Status enqueue(StreamHandle stream, const RunArgs& args) const;
};

}  // namespace w4moe
