// A cubin in the driver, and its function in one context.
//
// Cubins are loaded with cuLibraryLoadData rather than as a module of each context: a library belongs to no context, so that it
// can be unloaded when its last owner goes, whatever is current then and also after a context is gone. The function of a context
// is resolved eagerly (cuKernelGetFunction, cuFuncLoad), so that no launch ever loads anything under CUDA_MODULE_LOADING=LAZY.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "contract/variant.h"
#include "runtime/driver/current_device.hpp"

namespace w4moe {

/// Owns a CUlibrary and unloads it. Immutable; safe from any thread.
class KernelLibrary {
 public:
  /// Checks the cubin against the variant first (arch, the one kernel, every fact): corrupt, before the driver sees it.
  /// `builder` is the compiler build, for messages.
  static Result<std::shared_ptr<const KernelLibrary>> load(const driver::DriverTable& table, const Variant& variant,
                                                           std::span<const std::byte> cubin, const std::string& builder);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  const Variant& variant() const { return variant_; }
  driver::Kernel kernel() const { return kernel_; }
  const driver::DriverTable& table() const { return table_; }
  const std::string& description() const { return description_; }

 private:
  KernelLibrary(const driver::DriverTable& table, const Variant& variant) : table_(table), variant_(variant) {}

  const driver::DriverTable& table_;
  const Variant variant_;
  driver::Library library_ = nullptr;
  driver::Kernel kernel_ = nullptr;
  std::string description_;  ///< "w4moe_fc1 for sm_90a, built by NVRTC 13.0.88, driver 13.0"
};

/// A function that is ready to launch in one context. Keeps its library loaded.
struct LoadedKernel {
  std::shared_ptr<const KernelLibrary> library;
  driver::Function function = nullptr;
  unsigned long long context_id = 0;
  int registers = 0;
  int local_bytes = 0;
};

/// The largest dynamic shared memory that a launch of the variant asks for in any layer on a device with `optin_bytes` of it: what
/// some kernels need grows with the experts or with top-k, and layers share them.
i64 max_dynamic_shared_bytes(const Variant& variant, i64 optin_bytes);

/// Resolves the function in the current context, sets its attributes, and checks that the context can launch it.
Result<std::shared_ptr<const LoadedKernel>> resolve_function(std::shared_ptr<const KernelLibrary> library,
                                                             const driver::CurrentContext& context);

}  // namespace w4moe
