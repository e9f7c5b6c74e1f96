#include "runtime/weights/gpu_packer.hpp"

#include <algorithm>

#include "generator/problem/errors.hpp"
#include "packing/pack_args.h"
#include "runtime/dispatch/stream_context.hpp"
#include "runtime/weights/expert_slice.hpp"
#include "runtime/weights/operand.hpp"
#include "runtime/weights/packing_variants.hpp"
#include "runtime/weights/regions.hpp"

namespace w4moe {
namespace {

constexpr i64 kLargestGridX = 0x7fffffff;
constexpr i64 kLargestGridY = 0xffff;  // experts lie along y

i64 scans_bytes(const Problem& problem) {
  return align_up(problem.shape.experts * kProjections * static_cast<i64>(sizeof(ScanResult)), kRegionAlignBytes);
}

i64 staged_bytes(const SourceWeights& one_expert) {
  i64 bytes = 0;
  for_each_weight_tensor(one_expert, [&](const SourceTensor& tensor) { bytes += align_up(covered_bytes(tensor), kRegionAlignBytes); });
  return bytes;
}

/// One call of pack_on_gpu.
class Run {
 public:
  Run(const driver::DriverTable& table, const PackKernels& kernels, const Problem& problem, const SourceWeights& source,
      const PackMemory& memory, driver::Stream stream, const PackOptions& options)
      : table_(table), kernels_(kernels), problem_(problem), source_(source), memory_(memory), stream_(stream), options_(options),
        layout_(weight_layout(problem)), scans_(static_cast<std::size_t>(problem.shape.experts * kProjections)) {}

  /// What a failure leaves in flight has ended when this returns: it may read memory of this object.
  Status run() {
    Status status = run_steps();
    if (!status) table_.stream_synchronize(stream_);
    return status;
  }

 private:
  Status run_steps() {
    // The header comes last: what a failure leaves behind must not pass for prepared weights.
    if (Status s = check(table_.memset_d8_async(memory_.dest, 0, static_cast<std::size_t>(layout_.header_bytes()), stream_), "cuMemsetD8Async"); !s) return s;
    if (Status s = upload(memory_.workspace, scans_.data(), static_cast<i64>(scans_.size() * sizeof(ScanResult))); !s) return s;
    if (Status s = source_.on_device && !options_.on_expert_done ? pack_all() : pack_by_expert(); !s) return s;
    return finish();
  }

  Status check(driver::Code code, const char* call) const { return driver::check(table_, code, call); }

  Status upload(driver::DevicePtr to, const void* from, i64 bytes) const {
    if (bytes == 0) return {};
    return check(table_.memcpy_htod_async(to, from, static_cast<std::size_t>(bytes), stream_), "cuMemcpyHtoDAsync");
  }

  Status wait() const { return check(table_.stream_synchronize(stream_), "cuStreamSynchronize"); }

  ScanResult* device_scans(i64 expert) const { return reinterpret_cast<ScanResult*>(memory_.workspace) + expert * kProjections; }

  template <class Args>
  Status launch(const LoadedKernel& kernel, i64 items, i64 experts, Args args) const {
    const i64 threads = packing_variants(problem_.format, Arch::sm_80)[0].threads();
    driver::LaunchConfig config;
    const i64 grid_x = ceil_div(items, threads);
    if (grid_x > kLargestGridX) return unsupported("packing needs {} CTAs for one matrix, a grid holds {}", grid_x, kLargestGridX);
    config.grid_x = static_cast<unsigned>(grid_x);
    config.grid_y = static_cast<unsigned>(experts);
    config.block_x = static_cast<unsigned>(threads);
    config.stream = stream_;
    void* pointers[] = {&args};
    return check(table_.launch_kernel_ex(&config, kernel.function, pointers, nullptr), "cuLaunchKernelEx");
  }

  /// Scans `experts` experts whose views begin at `view_expert` of a source; results go to those of `expert` on.
  Status scan(const Problem& problem, const SourceWeights& source, i64 view_expert, i64 expert, i64 experts) const {
    for (const Projection projection : projections_of(problem_)) {
      ScanArgs args;
      args.view = source_view(problem, source, projection, view_expert);
      args.scans = device_scans(expert);
      args.projection = projection;
      if (Status s = launch(*kernels_.scan, scan_items(problem_.format, args.view), experts, args); !s) return s;
    }
    return {};
  }

  Status pack(const Problem& problem, const SourceWeights& source, i64 view_expert, i64 expert, i64 experts) const {
    const bool gated = is_gated(problem_.activation);
    for (const bool is_fc1 : {true, false}) {
      const MatrixLayout matrix = is_fc1 ? layout_.fc1() : layout_.fc2();
      const i64 units_at = (is_fc1 ? layout_.fc1_offset_bytes() : layout_.fc2_offset_bytes()) + matrix.unit_offset_bytes(expert, 0, 0);
      PackArgs args;
      args.low_projection = !is_fc1 ? Projection::down : gated ? Projection::gate : Projection::up;
      args.high_projection = is_fc1 ? Projection::up : Projection::down;
      args.low = source_view(problem, source, args.low_projection, view_expert);
      args.high = source_view(problem, source, args.high_projection, view_expert);
      args.scans = device_scans(expert);
      args.units = reinterpret_cast<u8*>(memory_.dest + static_cast<u64>(units_at));
      args.rows = matrix.rows;
      args.k = matrix.k;
      args.gated_fc1 = is_fc1 && gated ? 1 : 0;
      if (Status s = launch(*kernels_.pack, pack_items(matrix), experts, args); !s) return s;
    }
    return {};
  }

  /// Brings the scans of experts first..first+count-1 to the host and judges them. Waits for the stream.
  Status read_scans(i64 first, i64 count) {
    const std::span<ScanResult> results = std::span(scans_).subspan(static_cast<std::size_t>(first * kProjections), static_cast<std::size_t>(count * kProjections));
    const auto from = reinterpret_cast<driver::DevicePtr>(device_scans(first));
    if (Status s = check(table_.memcpy_dtoh_async(results.data(), from, results.size_bytes(), stream_), "cuMemcpyDtoHAsync"); !s) return s;
    if (Status s = wait(); !s) return s;
    return check_scan(problem_, results, options_.allow_nan_scales, first);
  }

  /// Tensors on the device, nobody waiting for single experts: two waits in all.
  Status pack_all() {
    const i64 experts = problem_.shape.experts;
    bool stacked = true;
    for (const SourceMatrix* matrix : {&source_.gate_up, &source_.gate, &source_.up, &source_.down}) {
      for (const SourceOperand* operand : {&matrix->codes, &matrix->scales, &matrix->zeros}) {
        stacked = stacked && (operand->empty() || is_stacked(*operand, 2, experts));
      }
    }
    const i64 step = stacked ? experts : 1;
    for (i64 expert = 0; expert < experts; expert += step) {
      if (Status s = scan(problem_, source_, expert, expert, step); !s) return s;
    }
    if (Status s = read_scans(0, experts); !s) return s;
    for (i64 expert = 0; expert < experts; expert += step) {
      if (Status s = pack(problem_, source_, expert, expert, step); !s) return s;
    }
    return {};
  }

  Status pack_by_expert() {
    const Problem one_problem = one_expert_problem(problem_);
    for (i64 expert = 0; expert < problem_.shape.experts; ++expert) {
      SourceWeights one = slice_expert(problem_, source_, expert);
      if (!source_.on_device) {
        if (Status s = stage(one); !s) return s;
      }
      if (Status s = scan(one_problem, one, 0, expert, 1); !s) return s;
      if (Status s = read_scans(expert, 1); !s) return s;
      if (Status s = pack(one_problem, one, 0, expert, 1); !s) return s;
      if (!options_.on_expert_done) continue;
      if (source_.on_device) {  // host tensors were read when read_scans() had waited
        if (Status s = wait(); !s) return s;
      }
      options_.on_expert_done(expert);
    }
    return {};
  }

  /// Copies an expert's tensors behind the scans and points the source to them. The stream keeps the next expert's copies behind
  /// the kernels of this one.
  Status stage(SourceWeights& one) const {
    driver::DevicePtr to = memory_.workspace + static_cast<u64>(scans_bytes(problem_));
    Status status;
    for_each_weight_tensor(one, [&](SourceTensor& tensor) {
      const i64 bytes = covered_bytes(tensor);
      if (status) status = upload(to, tensor.data, bytes);
      tensor.data = reinterpret_cast<const void*>(to);
      to += static_cast<u64>(align_up(bytes, kRegionAlignBytes));
    });
    return status;
  }

  /// Biases through host pointers; those on the device are brought over first.
  Result<SourceWeights> with_host_biases(std::vector<std::vector<std::byte>>& storage) const {
    SourceWeights host = source_;
    if (!source_.on_device) return host;
    for (SourceMatrix* matrix : {&host.gate_up, &host.gate, &host.up, &host.down}) {
      for (SourceTensor& tensor : matrix->bias) {
        storage.emplace_back(static_cast<std::size_t>(covered_bytes(tensor)));
        const auto from = reinterpret_cast<driver::DevicePtr>(tensor.data);
        if (Status s = check(table_.memcpy_dtoh_async(storage.back().data(), from, storage.back().size(), stream_), "cuMemcpyDtoHAsync"); !s) return s.error();
        tensor.data = storage.back().data();
      }
    }
    if (Status s = wait(); !s) return s.error();
    return host;
  }

  /// The small regions and, behind everything else, the header.
  Status finish() {
    std::vector<std::vector<std::byte>> storage;
    const Result<SourceWeights> biases = with_host_biases(storage);
    if (!biases) return biases.error();
    for (const RegionSpan& gap : unit_gaps(layout_)) {
      if (gap.bytes == 0) continue;
      const driver::DevicePtr at = memory_.dest + static_cast<u64>(gap.offset_bytes);
      if (Status s = check(table_.memset_d8_async(at, 0, static_cast<std::size_t>(gap.bytes), stream_), "cuMemsetD8Async"); !s) return s;
    }
    const std::vector<std::byte> tail = tail_region(problem_, *biases, scans_);
    if (Status s = upload(memory_.dest + static_cast<u64>(layout_.globals_offset_bytes()), tail.data(), static_cast<i64>(tail.size())); !s) return s;
    if (Status s = wait(); !s) return s;
    const std::vector<std::byte> header = header_region(layout_);
    if (Status s = upload(memory_.dest, header.data(), static_cast<i64>(header.size())); !s) return s;
    return wait();
  }

  const driver::DriverTable& table_;
  const PackKernels& kernels_;
  const Problem& problem_;
  const SourceWeights& source_;
  const PackMemory& memory_;
  driver::Stream stream_;
  const PackOptions& options_;
  WeightLayout layout_;
  std::vector<ScanResult> scans_;
};

Status check_memory(std::string_view name, driver::DevicePtr pointer, i64 bytes, i64 expected) {
  if (bytes < expected) return invalid_argument("{} of {} bytes, expected {}", name, bytes, expected);
  if (pointer % kRegionAlignBytes != 0) return invalid_argument("{} at {:#x}: must start at a multiple of {} bytes", name, pointer, kRegionAlignBytes);
  return {};
}

/// Whether the bytes that packing writes in either would be written by the other too.
bool overlap(const PackMemory& memory, i64 dest_bytes, i64 workspace_bytes) {
  return memory.dest < memory.workspace + static_cast<u64>(workspace_bytes) && memory.workspace < memory.dest + static_cast<u64>(dest_bytes);
}

}  // namespace

i64 pack_workspace_bytes(const Problem& problem, const SourceWeights& source) {
  i64 largest = 0;
  if (!source.on_device) {
    for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
      largest = std::max(largest, staged_bytes(slice_expert(problem, source, expert)));
    }
  }
  return scans_bytes(problem) + largest;
}

Status pack_on_gpu(const driver::DriverTable& table, const PackKernels& kernels, const Problem& problem, const SourceWeights& source,
                   const PackMemory& memory, driver::Stream stream, const PackOptions& options) {
  if (Status s = validate_source(problem, source); !s) return s;
  const i64 dest_bytes = weight_layout(problem).total_bytes();
  const i64 workspace_bytes = pack_workspace_bytes(problem, source);
  if (Status s = check_memory("destination", memory.dest, memory.dest_bytes, dest_bytes); !s) return s;
  if (Status s = check_memory("workspace", memory.workspace, memory.workspace_bytes, workspace_bytes); !s) return s;
  if (overlap(memory, dest_bytes, workspace_bytes)) {
    return invalid_argument("the workspace at {:#x} and the destination at {:#x} overlap", memory.workspace, memory.dest);
  }
  if (problem.shape.experts > kLargestGridY) return unsupported("packing on the GPU serves up to {} experts, this layer has {}", kLargestGridY, problem.shape.experts);
  if (Status s = check_not_capturing(table, stream); !s) return s;
  return Run(table, kernels, problem, source, memory, stream, options).run();
}

}  // namespace w4moe
