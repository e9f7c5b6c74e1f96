#include "runtime/module/kernel_library.hpp"

#include <fmt/format.h>

#include "generator/compile/kernel_check.hpp"
#include "generator/problem/errors.hpp"
#include "generator/render/variant_header.hpp"
#include "runtime/driver/scoped.hpp"

namespace w4moe {
namespace {

// Dynamic shared memory that needs no attribute, on every device.
constexpr i64 kSharedWithoutOptIn = 48 * 1024;

}  // namespace

Result<std::shared_ptr<const KernelLibrary>> KernelLibrary::load(const driver::DriverTable& table, const Variant& variant,
                                                                 std::span<const std::byte> cubin, const std::string& builder) {
  Result<CubinInfo> info = read_cubin(cubin);
  if (!info) return info.error();
  if (Status s = check_kernel(*info, variant); !s) return s.error();

  const std::string name = fmt::format("w4moe_{}", kind_name(variant.kind));
  std::shared_ptr<KernelLibrary> loaded(new KernelLibrary(table, variant));
  loaded->description_ = fmt::format("{} for {}, built by NVRTC {}, driver {}", name, info->arch(), builder.empty() ? "unknown" : builder,
                                     driver::version_text(table));
  const driver::RelaxedCapture relaxed(table);
  driver::Code code = table.library_load_data(&loaded->library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (code != driver::kSuccess) {
    loaded->library_ = nullptr;
    return driver::driver_error(table, code, "cuLibraryLoadData", loaded->description_);
  }
  code = table.library_get_kernel(&loaded->kernel_, loaded->library_, name.c_str());
  if (code != driver::kSuccess) return driver::driver_error(table, code, "cuLibraryGetKernel", loaded->description_);
  return std::shared_ptr<const KernelLibrary>(std::move(loaded));
}

KernelLibrary::~KernelLibrary() {
  if (library_ == nullptr) return;
  // The answer has nowhere to go: at exit it is CUDA_ERROR_DEINITIALIZED.
  const driver::RelaxedCapture relaxed(table_);
  table_.library_unload(library_);
}

i64 max_dynamic_shared_bytes(const Variant& variant, i64 optin_bytes) {
  Shape largest;
  largest.experts = kMaxExperts;
  largest.topk = kMaxTopk;
  return min_of(kernel_shared_bytes(variant, largest), optin_bytes);
}

Result<std::shared_ptr<const LoadedKernel>> resolve_function(std::shared_ptr<const KernelLibrary> library,
                                                             const driver::CurrentContext& context) {
  const driver::DriverTable& table = library->table();
  const Variant& variant = library->variant();
  const std::string& what = library->description();
  if (Status s = driver::check_runs_on(table, context.device, variant.arch); !s) return s.error();

  auto loaded = std::make_shared<LoadedKernel>();
  loaded->context_id = context.id;
  const driver::RelaxedCapture relaxed(table);
  if (const auto code = table.kernel_get_function(&loaded->function, library->kernel()); code != driver::kSuccess) {
    return driver::driver_error(table, code, "cuKernelGetFunction", what);
  }
  if (table.func_load != nullptr) {
    if (const auto code = table.func_load(loaded->function); code != driver::kSuccess) {
      return driver::driver_error(table, code, "cuFuncLoad", what);
    }
  }
  int optin = 0;
  if (const auto code = table.device_get_attribute(&optin, driver::DeviceAttribute::max_shared_bytes_per_block_optin, context.device); code != driver::kSuccess) {
    return driver::driver_error(table, code, "cuDeviceGetAttribute");
  }
  int static_shared = 0;
  if (const auto code = table.func_get_attribute(&static_shared, driver::FunctionAttribute::static_shared_bytes, loaded->function); code != driver::kSuccess) {
    return driver::driver_error(table, code, "cuFuncGetAttribute", what);
  }
  const i64 shared = max_dynamic_shared_bytes(variant, optin - static_shared);
  if (shared > kSharedWithoutOptIn) {
    const auto code = table.func_set_attribute(loaded->function, driver::FunctionAttribute::max_dynamic_shared_bytes, static_cast<int>(shared));
    if (code != driver::kSuccess) {
      return driver::driver_error(table, code, "cuFuncSetAttribute", fmt::format("{} bytes of dynamic shared memory for {}", shared, what));
    }
  }
  int max_threads = 0;
  const std::pair<driver::FunctionAttribute, int*> wanted[] = {{driver::FunctionAttribute::registers, &loaded->registers},
                                                               {driver::FunctionAttribute::local_bytes, &loaded->local_bytes},
                                                               {driver::FunctionAttribute::max_threads_per_block, &max_threads}};
  for (const auto& [attribute, to] : wanted) {
    if (const auto code = table.func_get_attribute(to, attribute, loaded->function); code != driver::kSuccess) {
      return driver::driver_error(table, code, "cuFuncGetAttribute", what);
    }
  }
  if (max_threads < variant.threads()) {
    return Error{ErrorCode::corrupt, fmt::format("the driver launches at most {} threads of {}, the plan needs {}", max_threads, what, variant.threads())};
  }
  loaded->library = std::move(library);
  return std::shared_ptr<const LoadedKernel>(std::move(loaded));
}

}  // namespace w4moe
