// The rows of a block of routes, as every thread of a CTA sees them.
#pragma once

#include "device/route_ids.h"

namespace w4moe {

/// Bits of the lanes below `lanes`, which may lie outside the warp.
W4MOE_INLINE u32 lanes_below(i32 lanes) { return lanes >= static_cast<i32>(kLanes) ? ~0u : lanes <= 0 ? 0u : (1u << lanes) - 1u; }

struct BlockRow {
  i64 source_row = 0;   ///< row of x (FC1) or of h (FC2)
  i32 pair = -1;        ///< route: token * topk + j; -1 past the block's end
  float factor = 1.0f;  ///< router weight (FC2; FC1 where it goes on the input)
};
static_assert(sizeof(BlockRow) == 16, "row_table_bytes() counts 16 bytes a row");

/// A block as its CTA finds it, and the row of it that the pair of this thread is; -1 where it is none of it.
struct FoundBlock {
  RouteBlock block;
  i32 row = -1;
};

/// The block that pair `first` begins: of the pairs with its expert, counted from the first pair on, it must be number 0, or
/// `BlockRows`, or twice that, ...; the block holds it and the next ones. No rows where it begins none. All threads of the CTA;
/// `words` are one per warp in shared memory, free again after the next barrier.
template <i32 BlockRows, i32 Threads>
W4MOE_INLINE FoundBlock find_block(const DirectRoutes& direct, i32 topk, i32 first, u32* words) {
  constexpr i32 kWarps = Threads / static_cast<i32>(kLanes);
  const i32 pair = ops::thread_index();
  const auto expert_of = [&](i32 p) {
    return expert_of_pair(direct.ids, direct.id_type, direct.ids_row_stride_elems, p / topk, p % topk, direct.experts);
  };
  const i32 expert = expert_of(first);
  const bool same = pair < direct.tokens * topk && expert_of(pair) == expert;
  const u32 mine = ops::ballot(same);
  if (ops::lane_index() == 0) words[ops::warp_index()] = mine;
  ops::barrier();
  // How many with this expert stand before `first`, before this thread's pair, and in all.
  i32 before_first = 0;
  i32 before = 0;
  i32 all = 0;
#pragma unroll
  for (i32 w = 0; w < kWarps; ++w) {
    const u32 bits = words[w];
    const i32 lanes_first = first - w * static_cast<i32>(kLanes);
    const i32 lanes_pair = pair - w * static_cast<i32>(kLanes);
    before_first += ops::count_bits(bits & lanes_below(lanes_first));
    before += ops::count_bits(bits & lanes_below(lanes_pair));
    all += ops::count_bits(bits);
  }
  FoundBlock found;
  if (expert < 0 || before_first % BlockRows != 0) return found;
  found.block = RouteBlock{expert, first, static_cast<i32>(min_of(all - before_first, BlockRows)), 0};
  const i32 row = before - before_first;
  if (same && row >= 0 && row < BlockRows) found.row = row;
  return found;
}

/// The block of item `index` of a portable GEMM kernel: found in the ids, or as the routing kernel left it.
template <Variant V, class Args>
W4MOE_INLINE FoundBlock block_of(const Args& a, i64 index, u8* shared) {
  if constexpr (V.dtype == DType::bf16) {  // fp16 needs the routing kernel, which clears h_amax
    if (a.direct.ids != nullptr) {
      u32* words = reinterpret_cast<u32*>(shared + V.tile.row_table_offset_bytes() + V.tile.row_table_bytes());
      return find_block<V.tile.block_rows, V.tile.threads()>(a.direct, a.topk, static_cast<i32>(index), words);
    }
  }
  return FoundBlock{a.blocks[index], -1};
}

}  // namespace w4moe
