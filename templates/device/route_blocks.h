// From routes per expert to slots and blocks: what both ways of routing share.
#pragma once

#include "contract/args.h"
#include "device/ops.h"

namespace w4moe {

/// Exclusive sum of `value` over the threads of a CTA of `Threads`; `warp_sums` is shared, one word per warp.
template <i32 Threads>
W4MOE_INLINE i32 exclusive_sum(i32 value, i32* warp_sums, i32& total) {
  constexpr i32 kWarps = Threads / static_cast<i32>(kLanes);
  const i32 lane = ops::lane_index();
  const i32 warp = ops::warp_index();
  i32 inclusive = value;
#pragma unroll
  for (u32 delta = 1; delta < 32; delta *= 2) {
    const i32 other = static_cast<i32>(ops::shuffle_up(static_cast<u32>(inclusive), delta));
    if (lane >= static_cast<i32>(delta)) inclusive += other;
  }
  if (lane == 31) warp_sums[warp] = inclusive;
  ops::barrier();
  i32 before = 0;
  total = 0;
  for (i32 w = 0; w < kWarps; ++w) {
    const i32 sum = warp_sums[w];
    before += w < warp ? sum : 0;
    total += sum;
  }
  return before + inclusive - value;
}

/// Writes the first slot of every expert to shared `first_slot` and, of the experts e with e % writers == writer, the blocks to
/// a.blocks; blocks past the last one get no rows. `counts` is shared, [experts]; `warp_sums` two words per warp. Every CTA that
/// calls this must do so with the same counts. A CTA barrier before and after.
template <i32 Threads>
W4MOE_INLINE void place_experts(const RouteArgs& a, const i32* counts, i32* first_slot, i32* warp_sums, i32 writer, i32 writers) {
  constexpr i32 kWarps = Threads / static_cast<i32>(kLanes);
  const i32 thread = ops::thread_index();
  // Experts in thread order: thread t owns a run of them, so that two sums give every first slot and first block.
  const i32 run = static_cast<i32>(ceil_div(a.experts, Threads));
  const i32 begin = thread * run;
  const i32 end = static_cast<i32>(min_of(begin + run, a.experts));
  i32 slots = 0;
  i32 blocks = 0;
  for (i32 e = begin; e < end; ++e) {
    slots += counts[e];
    blocks += static_cast<i32>(ceil_div(counts[e], even_block_rows(counts[e], a.block_rows)));
  }
  i32 total_slots = 0;
  i32 total_blocks = 0;
  i32 slot = exclusive_sum<Threads>(slots, warp_sums, total_slots);
  i32 block = exclusive_sum<Threads>(blocks, warp_sums + kWarps, total_blocks);
  for (i32 e = begin; e < end; ++e) {
    const i32 rows = counts[e];
    const i32 block_rows = even_block_rows(rows, a.block_rows);
    first_slot[e] = slot;
    if (e % writers == writer) {
      for (i32 done = 0, b = block; done < rows; done += block_rows, ++b) {
        a.blocks[b] = RouteBlock{e, slot + done, static_cast<i32>(min_of(rows - done, block_rows)), 0};
      }
    }
    block += static_cast<i32>(ceil_div(rows, block_rows));
    slot += rows;
  }
  for (i64 b = total_blocks + writer * Threads + thread; b < a.max_blocks; b += writers * Threads) a.blocks[b] = RouteBlock{};
  if (writer == 0 && thread == 0) *a.counts = RouteCounts{total_blocks, total_slots, {0, 0}};
}

/// The control region is as init_scratch wrote it. Else reports that, and leaves a routing of no blocks; true for the whole grid
/// or for none of it.
W4MOE_INLINE bool check_control(const RouteArgs& a, i32 writer, i32 writers, i32 threads) {
  if (a.control->magic == kControlMagic && a.control->version == kControlVersion) return true;
  const i32 thread = ops::thread_index();
  if (writer == 0 && thread == 0) {
    ops::atomic_max(&a.control->status, static_cast<u32>(KernelStatus::control_corrupt));
    *a.counts = RouteCounts{};
  }
  for (i64 b = writer * threads + thread; b < a.max_blocks; b += writers * threads) a.blocks[b] = RouteBlock{};
  return false;
}

}  // namespace w4moe
