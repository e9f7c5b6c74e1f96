#include "runtime/dispatch/submit.hpp"

#include <fmt/format.h>

namespace w4moe {

Status submit(const driver::DriverTable& table, const Plan& plan, const std::vector<std::shared_ptr<const LoadedKernel>>& kernels,
              const LaunchSequence& launches, driver::Stream stream) {
  for (const Launch& launch : launches) {
    driver::LaunchAttribute pdl;
    pdl.id = driver::kAttributeProgrammaticStreamSerialization;
    pdl.value.programmatic_stream_serialization_allowed = 1;

    driver::LaunchConfig config;
    config.grid_x = launch.grid_x;
    config.block_x = launch.threads;
    config.shared_bytes = launch.shared_bytes;
    config.stream = stream;
    config.attributes = &pdl;
    config.attribute_count = launch.pdl ? 1 : 0;

    // The driver copies the arguments during the call and does not write to them.
    void* args[] = {const_cast<std::byte*>(launch.args.data())};
    const std::size_t index = static_cast<std::size_t>(launch.kernel);
    const driver::Code code = table.launch_kernel_ex(&config, kernels[index]->function, args, nullptr);
    if (code != driver::kSuccess) {
      return driver::driver_error(table, code, "cuLaunchKernelEx",
                                  fmt::format("kernel {}, {} CTAs of {} threads, {} bytes of dynamic shared memory", plan.kernels[index].name,
                                              launch.grid_x, launch.threads, launch.shared_bytes));
    }
  }
  return {};
}

}  // namespace w4moe
