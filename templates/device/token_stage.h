// The token side of a GEMM: a block's rows on their way from global memory through a ring of shared-memory stages to B fragments.
#pragma once

#include "contract/variant.h"
#include "device/ops.h"

namespace w4moe {

/// One row of the block as every thread of the CTA sees it.
struct BlockRow {
  i64 source_row = 0;  ///< row of x (FC1) or of h (FC2)
  i32 pair = -1;       ///< route: token * topk + j; -1 past the block's end
  float factor = 1.0f; ///< router weight (FC2; FC1 where it goes on the input), or what a scaled row is divided by
};
static_assert(sizeof(BlockRow) == 16, "row_table_bytes() counts 16 bytes a row");

/// Moves stages of [block_rows][stage_k] elements. Source rows hold T, or fp32 where `Wide` (h of fp16 layers, scaled by row).
template <Variant V, bool Wide>
struct TokenStage {
  static constexpr GemmTile kTile = V.tile;
  static constexpr i64 kVectors = kTile.stage_k() / kRowVectorElems;            // 16-byte vectors of a stage row
  static constexpr i64 kRowsPerPass = kTile.threads() / kVectors > 0 ? kTile.threads() / kVectors : 1;
  static constexpr i64 kPasses = ceil_div(kTile.block_rows, kRowsPerPass);
  static constexpr i64 kColumnPasses = kTile.threads() >= kVectors ? 1 : kVectors / kTile.threads();
  static constexpr i64 kSourceBytes = Wide ? 4 : 2;
  static constexpr TailRule kTail{V.matrix().k, 0};
  static_assert(kTile.threads() % kVectors == 0 || kVectors % kTile.threads() == 0, "threads tile the stage");

  u8* stages;                  // shared
  const u8* anchor;            // an address that exists, for vectors without a valid byte
  const u8* source[kPasses];   // first byte of this thread's rows; null past the block's end
  float scale[Wide ? kPasses : 1];
  i64 row0;
  i64 vector0;

  /// `table` must be visible to the CTA. `row_bytes` is the stride between source rows.
  W4MOE_INLINE void init(u8* shared, const void* base, i64 row_bytes, const BlockRow* table, const float* row_scale) {
    stages = shared;
    anchor = static_cast<const u8*>(base);
    const i64 thread = ops::thread_index();
    row0 = thread / kVectors;
    vector0 = thread % kVectors;
#pragma unroll
    for (i64 i = 0; i < kPasses; ++i) {
      const i64 row = row0 + i * kRowsPerPass;
      const bool live = row < kTile.block_rows && table[row].pair >= 0;
      source[i] = live ? static_cast<const u8*>(base) + table[row].source_row * row_bytes : nullptr;
      if constexpr (Wide) scale[i] = live ? row_scale[row] : 0.0f;
    }
  }

  /// Place of a 16-byte vector in a stage: swizzled inside 128-byte lines, so that eight rows of a matrix meet eight banks groups.
  // lint: one-definition: bank swizzle of shared memory, seen by this struct alone; no host code asks for it
  static W4MOE_INLINE i64 vector_offset_bytes(i64 row, i64 vector) {
    return row * kTile.stage_row_bytes() + ((vector & ~7) | ((vector ^ row) & 7)) * 16;
  }

  /// Starts the copies of stage `index`; the caller commits the group.
  W4MOE_INLINE void issue(i64 index) {
    u8* stage = stages + (index % kTile.stages) * kTile.stage_bytes();
#pragma unroll
    for (i64 i = 0; i < kPasses; ++i) {
      const i64 row = row0 + i * kRowsPerPass;
      if (kPasses * kRowsPerPass != kTile.block_rows && row >= kTile.block_rows) break;
#pragma unroll
      for (i64 c = 0; c < kColumnPasses; ++c) {
        const i64 vector = vector0 + c * kTile.threads();
        const i64 first = index * kTile.stage_k() + vector * kRowVectorElems;
        u8* place = stage + vector_offset_bytes(row, vector);
        const i64 valid = source[i] == nullptr ? 0 : kTail.valid_vector_bytes(first, 2);
        if constexpr (Wide) {
          ops::store_shared_x4(place, scaled_vector(source[i], scale[i], first, valid));
        } else {
          const u8* from = valid > 0 ? source[i] + first * kSourceBytes : anchor;
          ops::copy16_async(place, from, static_cast<i32>(valid));
        }
      }
    }
  }

  /// Eight fp32 elements times a power of two, rounded once to T. `valid` counts bytes of T.
  static W4MOE_INLINE ops::U32x4 scaled_vector(const u8* row, float factor, i64 first, i64 valid) {
    ops::U32x4 out{};
    if (valid <= 0) return out;
    const float* elems = reinterpret_cast<const float*>(row) + first;
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
      const bool live = valid > 4 * i;  // I is a multiple of eight, so vectors are whole; kept for the rule's sake
      out.v[i] = live ? ops::pack2<V.dtype>(elems[2 * i] * factor, elems[2 * i + 1] * factor) : 0u;
    }
    return out;
  }

  /// Address of this lane's row for the 32 K at `unit` (of the stage) and half p, eight rows from 8 * tile on.
  W4MOE_INLINE const u8* fragment_row(i64 index, i64 unit, i32 p, i64 tile) const {
    const i32 lane = ops::lane_index();
    const i64 row = tile * 8 + lane % 8;
    const i64 vector = unit * (kUnitK / kRowVectorElems) + 4 * p + lane / 8;
    return stages + (index % kTile.stages) * kTile.stage_bytes() + vector_offset_bytes(row, vector);
  }
};

}  // namespace w4moe
