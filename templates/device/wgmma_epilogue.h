// Outputs of the register-A kernels: 8 tokens at a time pass through a warp's corner of shared memory, where stmatrix turns
// feature-major fragments into token-major rows, and leave as whole 16-byte vectors.
#pragma once

#include "device/epilogue.h"
#include "device/wgmma_mainloop.h"

namespace w4moe {

/// Copies rows of staged outputs to global memory. `Bytes` per row, `row_of(r)` gives the first byte of the warp's part or null.
template <Variant V, i32 Bytes, class RowOf>
W4MOE_INLINE void flush_staged(const u8* staging, i32 rows, i32 valid_bytes, const RowOf& row_of) {
  constexpr i32 kVectors = Bytes / 16;
  const i32 lane = ops::lane_index();
  for (i32 i = lane; i < rows * kVectors; i += static_cast<i32>(kLanes)) {
    const i32 row = i / kVectors;
    const i32 vector = i % kVectors;
    u8* to = row_of(row);
    if (to != nullptr && vector * 16 < valid_bytes) {
      *reinterpret_cast<ops::U32x4*>(to + vector * 16) = ops::load_shared_x4(staging + row * V.wgmma.staging_row_bytes() + vector * 16);
    }
  }
}

/// Where lane l writes its 16-byte row of an 8x8 matrix: matrix l / 8 covers outputs 8 (l / 8) .. of token l % 8.
template <Variant V>
W4MOE_INLINE u8* staged_matrix_row(u8* staging, i32 token_group) {
  const i32 lane = ops::lane_index();
  return staging + (token_group * 8 + lane % 8) * V.wgmma.staging_row_bytes() + lane / 8 * 16;
}

}  // namespace w4moe
