// The kernels that an engine has loaded, by context and variant. Each build() of a plan holds its kernels; bindings hold them too.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "runtime/build/kernel_builder.hpp"
#include "runtime/module/kernel_library.hpp"

namespace w4moe {

/// Thread-safe.
class KernelTable {
 public:
  using Kernels = std::vector<std::shared_ptr<const LoadedKernel>>;

  /// The kernels of a plan in a context, parallel to plan.kernels; nothing unless all are loaded.
  std::optional<Kernels> find(const Plan& plan, unsigned long long context_id) const;

  /// find(), with one more hold on each, and their rows; nothing unless all are loaded.
  std::optional<std::vector<KernelReport>> hold(const Plan& plan, unsigned long long context_id);

  /// Loads what is missing and holds all. `built[index_of[i]]` is the binary of kernel i of the plan. On an error nothing is held.
  Status load(const driver::DriverTable& table, const Plan& plan, const driver::CurrentContext& context, std::span<const BuiltKernel> built,
              std::span<const std::size_t> index_of);

  /// Takes one hold from each kernel of the plan. not_prepared if they are not held.
  Status release(const Plan& plan, unsigned long long context_id);
  void clear();

 private:
  struct Slot {
    unsigned long long context_id;
    Variant variant;
    std::shared_ptr<const LoadedKernel> kernel;
    KernelReport report;
    int holds = 0;
  };

  Slot* find_slot(const Variant& variant, unsigned long long context_id);
  const Slot* find_slot(const Variant& variant, unsigned long long context_id) const;
  Result<std::shared_ptr<const LoadedKernel>> load_one(const driver::DriverTable& table, const Variant& variant,
                                                       const driver::CurrentContext& context, const BuiltKernel& built) const;

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
};

}  // namespace w4moe
