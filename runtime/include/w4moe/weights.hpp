// Weights of one layer: how a checkpoint describes them, and how they become the one packed layout that every kernel reads.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/weight_layout.h"
#include "packing/scan_block.h"
#include "w4moe/problem.hpp"

namespace w4moe {

/// Element type of a checkpoint tensor.
enum class SourceType : u8 { u8, i8, i32, e8m0, e4m3, bf16, f16, f32 };

std::string_view to_string(SourceType type);
i64 source_type_bytes(SourceType type);

/// One tensor of a checkpoint, not owned. Shape in elements of `type`; strides in elements, empty for contiguous row-major.
struct SourceTensor {
  const void* data = nullptr;
  SourceType type = SourceType::u8;
  std::vector<i64> shape;
  std::vector<i64> strides_elems;
};

/// A quantity of all experts: either one tensor whose first dimension is the expert, or one tensor per expert without it.
/// Empty: the checkpoint has none.
using SourceOperand = std::vector<SourceTensor>;

/// The rows of FC1 of a gated layer. Zero is no order: a source that names none is refused.
enum class GateUpOrder : u8 {
  unspecified,
  separate,     ///< two tensors: `gate` and `up`; also the order of ungated layers, which have `up` only
  gate_first,   ///< one tensor of 2 I rows, gate in rows 0..I-1
  up_first,     ///< one tensor of 2 I rows, up in rows 0..I-1
  interleaved,  ///< one tensor of 2 I rows, gate in even rows, up in odd rows
};

/// How a global scale enters: the weight is code * block scale * global, or code * block scale / global.
enum class GlobalConvention : u8 { unspecified, none, multiply, reciprocal };

/// How block scales are stored: [rows][groups], [groups][rows], or in 128x4 tiles as one flat run of bytes (or any shape of that size).
enum class ScaleLayout : u8 { unspecified, row_major, transposed, swizzled_128x4 };

/// One matrix of all experts (rows x k, k along the contraction).
///  codes: u8 or i8 [rows][k / 2], or i32 [rows][k / 8]; awq_words i32 [rows / 8][k]
///  scales: [rows][groups] of the format's scale type (e8m0 and e4m3 may come as u8), see ScaleLayout
///  zeros: see ZeroOrder: bytes u8 or i8 [rows][groups]; nibbles_along_rows and awq_words i32 [rows / 8][groups] (rounded up);
///         nibbles_along_groups u8 [rows][groups / 2] (rounded up)
///  bias: bf16, f16 or f32 [rows]
struct SourceMatrix {
  SourceOperand codes;
  SourceOperand scales;
  SourceOperand zeros;
  SourceOperand bias;
};

/// What a checkpoint holds of one layer. The declared orders hold for all matrices; every order that the format needs must be named.
struct SourceWeights {
  GateUpOrder gate_up_order = GateUpOrder::unspecified;
  CodeOrder code_order = CodeOrder::unspecified;
  CodeSign code_sign = CodeSign::unspecified;            ///< INT4 only
  ScaleLayout scale_layout = ScaleLayout::unspecified;
  ZeroOrder zero_order = ZeroOrder::unspecified;         ///< INT4 only; none for symmetric codes
  u8 zero_add = 0;                                       ///< added to stored zero points, modulo 16 (8 where they are signed)
  GlobalConvention global_convention = GlobalConvention::unspecified;
  bool on_device = false;                                ///< data pointers are device memory
  bool output_bias = true;  ///< with biases: false where another rank of a tensor-parallel group adds the bias of `down`

  SourceMatrix gate_up;  ///< 2 I rows, H columns; all orders but separate
  SourceMatrix gate;     ///< I rows; separate, gated
  SourceMatrix up;       ///< I rows; separate, and ungated
  SourceMatrix down;     ///< H rows, I columns

  /// One fp32 per expert, host memory; empty where global_convention is none. Gate and up may differ.
  std::vector<float> gate_global;
  std::vector<float> up_global;
  std::vector<float> down_global;
};

struct PackOptions {
  bool allow_nan_scales = false;  ///< NaN scales pass through to the outputs that use them instead of being refused
  int threads = 1;                ///< host threads; 0: as many as the machine has
  /// Called in ascending order after the last read of an expert's tensors, which may then be freed. Several threads may call it,
  /// one at a time.
  std::function<void(i64 expert)> on_expert_done;
  /// Asked before each expert is packed on the CPU, by any thread; true ends packing with an error (not_prepared).
  std::function<bool()> cancelled;
};

/// Layout of the prepared weights of a problem. No check; validate() the problem first.
WeightLayout weight_layout(const Problem& problem);

/// Exact size of the prepared weights; the problem is validated.
Result<i64> prepared_weight_bytes(const Problem& problem);

/// Accepts a source for a problem, or names the tensor and what was expected: orders, dtypes, shapes, strides, counts.
Status validate_source(const Problem& problem, const SourceWeights& source);

/// The view of one projection of one expert that the packer reads. The source has been validated.
SourceView source_view(const Problem& problem, const SourceWeights& source, Projection projection, i64 expert);

/// What the scales of a layer hold.
struct ScanReport {
  std::vector<ScanResult> results;  ///< [E][kProjections]
  QuantFormat recommended;          ///< the problem's format; mxfp4:wide where the exponents of some projection need it
  i64 nan_scales_projections = 0;   ///< projections with at least one scale that is not a finite number
};

/// Reads every scale on the CPU (host tensors only).
Result<ScanReport> scan_on_cpu(const Problem& problem, const SourceWeights& source, int threads = 1);

/// Why the scan forbids packing (exponent spread, NaN scales), naming expert and projection, or success.
Status check_scan(const Problem& problem, std::span<const ScanResult> results, bool allow_nan_scales, i64 first_expert = 0);

/// Packs the whole layer: header, units, global factors, biases, and zeros in every gap. `dest` holds prepared_weight_bytes() and
/// starts at a multiple of 16 bytes. Host tensors only.
Status pack_on_cpu(const Problem& problem, const SourceWeights& source, std::span<std::byte> dest, const PackOptions& options = {});

/// Checks that bytes are the prepared weights of this problem: header, layout id, size.
Status check_prepared(const Problem& problem, std::span<const std::byte> prepared);

/// One projection read back from prepared weights.
struct UnpackedMatrix {
  i64 rows = 0;
  i64 k = 0;
  i64 groups = 0;
  std::vector<u8> codes;    ///< [rows][k] 0..15
  std::vector<u16> scales;  ///< [rows][groups] in the checkpoint's encoding; narrow MXFP4 as if its window began at byte 2
  std::vector<u8> zeros;    ///< [rows][groups]; 8 without zero points
  std::vector<float> bias;  ///< [rows]; empty without biases
  float global = 1.0f;      ///< what multiplies code * scale: the checkpoint's global times 2^(base-2) for narrow MXFP4
};

/// Reads one projection of one expert back, through the contract's own inverse functions. NaN blocks come back as codes 0 with a NaN scale,
/// blocks of value zero as codes 0 with any finite scale, negative NVFP4 scales as positive ones with negated codes.
Result<UnpackedMatrix> unpack_on_cpu(const Problem& problem, std::span<const std::byte> prepared, Projection projection, i64 expert);

}  // namespace w4moe
