// Packing on the GPU: the kernels of kernels/pack.cuh and kernels/scan.cuh over a layer, expert by expert where the tensors lie in host memory.
#pragma once

#include <array>
#include <memory>

#include "runtime/build/kernel_wish.hpp"
#include "runtime/module/kernel_library.hpp"
#include "w4moe/weights.hpp"

namespace w4moe {

/// The two kernels of a format, loaded in the current context. They serve every shape of that format.
struct PackKernels {
  std::shared_ptr<const LoadedKernel> scan;
  std::shared_ptr<const LoadedKernel> pack;
};

/// Device bytes that pack_on_gpu works in: the scans of all experts, and room for the tensors of the largest expert where they lie
/// in host memory. Host arithmetic only; the source has been validated.
i64 pack_workspace_bytes(const Problem& problem, const SourceWeights& source);

/// Device memory of the caller's. `dest` holds prepared_weight_bytes(), both are aligned to kRegionAlignBytes.
struct PackMemory {
  driver::DevicePtr dest = 0;
  i64 dest_bytes = 0;
  driver::DevicePtr workspace = 0;
  i64 workspace_bytes = 0;
};

/// Packs a layer, in stream order, and waits for the stream before it returns: the bytes are those of pack_on_cpu. Allocates nothing
/// on the device. on_expert_done is called once an expert's tensors were read; with it, device tensors are packed one expert at a
/// time, without it all at once.
Status pack_on_gpu(const driver::DriverTable& table, const PackKernels& kernels, const Problem& problem, const SourceWeights& source,
                   const PackMemory& memory, driver::Stream stream, const PackOptions& options);

}  // namespace w4moe
