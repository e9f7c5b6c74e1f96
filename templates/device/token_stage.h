// The token side of a portable GEMM: a block's rows on their way from global memory through a ring of shared-memory stages to B
// fragments.
#pragma once

#include "contract/variant.h"
#include "device/block_rows.h"

namespace w4moe {

/// Moves stages of [block_rows][stage_k] elements. Source rows hold T, or fp32 where `Wide` (h of fp16 layers, scaled by row).
template <Variant V, bool Wide>
struct TokenStage {
  static constexpr GemmTile kTile = V.tile;
  static constexpr i32 kVectors = static_cast<i32>(kTile.stage_k() / kRowVectorElems);  // 16-byte vectors of a stage row
  static constexpr i32 kThreads = kTile.threads();
  static constexpr i32 kRowsPerPass = kThreads / kVectors > 0 ? kThreads / kVectors : 1;
  static constexpr i32 kPasses = static_cast<i32>(ceil_div(kTile.block_rows, kRowsPerPass));
  static constexpr i32 kColumns = kThreads >= kVectors ? 1 : kVectors / kThreads;
  static constexpr i32 kRowBytes = static_cast<i32>(kTile.stage_row_bytes());
  static constexpr i32 kStageBytes = static_cast<i32>(kTile.stage_bytes());
  static constexpr i32 kSourceBytes = Wide ? 4 : 2;
  static constexpr TailRule kTail{V.matrix().k, 0};
  static_assert(kThreads % kVectors == 0 || kVectors % kThreads == 0, "threads tile the stage");

  const u8* source[kPasses];  // this thread's vector of its rows, in the next stage to issue
  float scale[Wide ? kPasses : 1];
  u32 live;                   // bit i: row of pass i is inside the block
  i32 first;                  // column of this thread's vector in the next stage to issue
  ops::SharedAddress fill;    // this thread's place in the slot to fill next
  ops::SharedAddress fill_end;
  ops::SharedAddress read[2]; // this lane's matrix row in the slot to use next, for both halves of a unit
  ops::SharedAddress read_end;

  /// Place of a 16-byte vector in a slot: swizzled inside 128-byte lines, so that the eight rows of a matrix meet all banks.
  static W4MOE_INLINE i32 vector_offset_bytes(i32 row, i32 vector) {
    return row * kRowBytes + ((vector & ~7) | ((vector ^ row) & 7)) * 16;
  }

  /// `table` must be visible to the CTA. `row_bytes` is the stride between source rows.
  W4MOE_INLINE void init(u8* shared, const void* base, i64 row_bytes, const BlockRow* table, const float* row_scale) {
    const i32 thread = ops::thread_index();
    const i32 row0 = thread / kVectors;
    const i32 vector = thread % kVectors;
    live = 0;
    first = vector * static_cast<i32>(kRowVectorElems);
#pragma unroll
    for (i32 i = 0; i < kPasses; ++i) {
      const i32 row = row0 + i * kRowsPerPass;
      source[i] = static_cast<const u8*>(base);
      if (row < kTile.block_rows && table[row].pair >= 0) {
        live |= 1u << i;
        source[i] += table[row].source_row * row_bytes + first * kSourceBytes;
        if constexpr (Wide) scale[i] = row_scale[row];
      }
    }
    const ops::SharedAddress ring = ops::shared_address(shared);
    fill = ring + vector_offset_bytes(row0, vector);
    fill_end = ring + kTile.stages * kStageBytes;
    const i32 lane = ops::lane_index();
    const i32 warp_unit = ops::warp_index() / kTile.warps_rows * kTile.units_per_warp * 8;
    read[0] = ring + vector_offset_bytes(lane % 8, warp_unit + lane / 8);
    read[1] = ring + vector_offset_bytes(lane % 8, warp_unit + 4 + lane / 8);
    read_end = ring + kTile.stages * kStageBytes;
  }

  /// Starts the copies of the next stage; the caller commits the group.
  W4MOE_INLINE void issue() {
    const i32 row0 = ops::thread_index() / kVectors;
#pragma unroll
    for (i32 i = 0; i < kPasses; ++i) {
      if (kPasses * kRowsPerPass != kTile.block_rows && row0 + i * kRowsPerPass >= kTile.block_rows) break;
#pragma unroll
      for (i32 c = 0; c < kColumns; ++c) {
        const bool valid = (live >> i & 1u) != 0 && kTail.valid_vector_bytes(first + c * kThreads * 8, 2) == 16;
        const u8* from = source[i] + c * kThreads * 8 * kSourceBytes;
        const ops::SharedAddress to = fill + pass_offset_bytes(i) + c * kThreads * 16;
        if constexpr (Wide) {
          ops::store_shared_x4(to, valid ? scaled_vector(from, scale[i]) : ops::U32x4{});
        } else {
          ops::copy16_async(to, from, valid ? 16 : 0);
        }
      }
      source[i] += kTile.stage_k() * kSourceBytes;
    }
    first += static_cast<i32>(kTile.stage_k());
    fill += kStageBytes;
    if (fill >= fill_end) fill -= kTile.stages * kStageBytes;
  }

  /// Distance between the rows of pass 0 and pass i of one thread, with the swizzle that changes with the row.
  W4MOE_INLINE i32 pass_offset_bytes(i32 i) const {
    if constexpr (kRowsPerPass % 8 == 0) {
      return i * kRowsPerPass * kRowBytes;
    } else {
      const i32 row0 = ops::thread_index() / kVectors;
      const i32 vector = ops::thread_index() % kVectors;
      return vector_offset_bytes(row0 + i * kRowsPerPass, vector) - vector_offset_bytes(row0, vector);
    }
  }

  /// Eight fp32 elements times a power of two, rounded once to T.
  static W4MOE_INLINE ops::U32x4 scaled_vector(const u8* from, float factor) {
    const float* elems = reinterpret_cast<const float*>(from);
    ops::U32x4 out;
#pragma unroll
    for (i32 i = 0; i < 4; ++i) out.v[i] = ops::pack2<V.dtype>(elems[2 * i] * factor, elems[2 * i + 1] * factor);
    return out;
  }

  /// This lane's matrix row for half p of the warp's unit j in the slot in use, token rows 8 t .. 8 t + 7.
  W4MOE_INLINE ops::SharedAddress fragment_row(i32 j, i32 p, i32 t) const { return read[p] + (j * 128 + t * 8 * kRowBytes); }

  /// Moves on to the next slot.
  W4MOE_INLINE void consumed() {
    read[0] += kStageBytes;
    read[1] += kStageBytes;
    if (read[0] >= read_end) {
      read[0] -= kTile.stages * kStageBytes;
      read[1] -= kTile.stages * kStageBytes;
    }
  }
};

}  // namespace w4moe
