// Routing, one CTA: untrusted ids in, blocks of routes by expert out. Ids outside 0..E-1 are dropped; duplicates count each time.
// The order of an expert's routes is free: no result depends on the column a route sits in.
#include "contract/args.h"
#include "device/facts.h"
#include "device/route_ids.h"

namespace w4moe {

template <Variant V>
struct Route {
  static constexpr i32 kThreads = V.threads();
  static constexpr i32 kWarps = kThreads / static_cast<i32>(kLanes);

  /// Exclusive sum of `value` over the threads of the CTA; `warp_sums` is shared, one word per warp.
  static W4MOE_INLINE i32 exclusive_sum(i32 value, i32* warp_sums, i32& total) {
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

  static W4MOE_INLINE void run(const RouteArgs& a) {
    ops::grid_wait();
    ops::grid_launch_next();
    i32* counts = reinterpret_cast<i32*>(ops::shared_memory());
    i32* first_slot = counts + a.experts;
    i32* warp_sums = first_slot + a.experts;

    const i32 thread = ops::thread_index();
    const i64 pairs = a.tokens * a.topk;
    if (a.control->magic != kControlMagic || a.control->version != kControlVersion) {
      if (thread == 0) {
        ops::atomic_max(&a.control->status, static_cast<u32>(KernelStatus::control_corrupt));
        *a.counts = RouteCounts{};
      }
      for (i64 b = thread; b < a.max_blocks; b += kThreads) a.blocks[b] = RouteBlock{};
      return;
    }

    for (i32 e = thread; e < a.experts; e += kThreads) counts[e] = 0;
    ops::barrier();

    // Most calls have a pair per thread at most: its rank comes with the count, and one pass over the ids is enough.
    i32 my_expert = -1;
    i32 my_rank = 0;
    for (i64 p = thread; p < pairs; p += kThreads) {
      const i32 e = expert_of_pair(a.ids, a.id_type, a.ids_row_stride_elems, p / a.topk, p % a.topk, a.experts);
      if (e >= 0) {
        const i32 rank = ops::atomic_add_shared(&counts[e], 1);
        if (p == thread) {
          my_expert = e;
          my_rank = rank;
        }
      }
      if (a.h_amax != nullptr) a.h_amax[p] = 0;
    }
    ops::barrier();

    // Experts in thread order: thread t owns a run of them, so that two sums give every first slot and first block.
    const i32 run = static_cast<i32>(ceil_div(a.experts, kThreads));
    const i32 begin = thread * run;
    const i32 end = static_cast<i32>(min_of(begin + run, a.experts));
    i32 slots = 0;
    i32 blocks = 0;
    for (i32 e = begin; e < end; ++e) {
      slots += counts[e];
      blocks += static_cast<i32>(ceil_div(counts[e], a.block_rows));
    }
    i32 total_slots = 0;
    i32 total_blocks = 0;
    i32 slot = exclusive_sum(slots, warp_sums, total_slots);
    i32 block = exclusive_sum(blocks, warp_sums + kWarps, total_blocks);
    for (i32 e = begin; e < end; ++e) {
      const i32 rows = counts[e];
      first_slot[e] = slot;
      for (i32 done = 0; done < rows; done += a.block_rows) {
        a.blocks[block++] = RouteBlock{e, slot + done, static_cast<i32>(min_of(rows - done, a.block_rows)), 0};
      }
      slot += rows;
    }
    for (i64 b = total_blocks + thread; b < a.max_blocks; b += kThreads) a.blocks[b] = RouteBlock{};
    if (thread == 0) *a.counts = RouteCounts{total_blocks, total_slots, {0, 0}};
    ops::barrier();

    if (my_expert >= 0 && pairs <= kThreads) a.sorted_pairs[first_slot[my_expert] + my_rank] = thread;
    if (pairs <= kThreads) return;
    for (i64 p = thread; p < pairs; p += kThreads) {
      const i32 e = expert_of_pair(a.ids, a.id_type, a.ids_row_stride_elems, p / a.topk, p % a.topk, a.experts);
      if (e >= 0) a.sorted_pairs[ops::atomic_add_shared(&first_slot[e], 1)] = static_cast<i32>(p);
    }
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_route(W4MOE_ARGS(w4moe::RouteArgs) args) { w4moe::Route<w4moe::kVariant>::run(args); }
W4MOE_KERNEL_FACTS(w4moe::RouteArgs)
