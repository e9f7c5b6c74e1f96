// Parallel routing, second kernel: from the counts of all chunks every CTA derives the same slots and blocks, and places the pairs
// of its own chunk.
#include "contract/args.h"
#include "device/facts.h"
#include "device/route_blocks.h"
#include "device/route_ids.h"

namespace w4moe {

template <Variant V>
struct RoutePlace {
  static constexpr i32 kThreads = V.threads();

  static W4MOE_INLINE void run(const RouteArgs& a) {
    ops::grid_launch_next();
    i32* counts = reinterpret_cast<i32*>(ops::shared_memory());
    i32* first_slot = counts + a.experts;
    i32* warp_sums = first_slot + a.experts;
    const i32 thread = ops::thread_index();
    const i32 chunk = static_cast<i32>(ops::block_index_x());
    const i32 chunks = static_cast<i32>(ops::grid_size_x());
    ops::grid_wait();
    if (!check_control(a, chunk, chunks, kThreads)) return;

    i32 before[kMaxRunExperts] = {};  // routes of this thread's experts in the chunks before this one
    for (i32 i = 0; i < kMaxRunExperts; ++i) {
      const i32 e = thread + i * kThreads;
      if (e >= a.experts) break;
      i32 total = 0;
#pragma unroll 8
      for (i32 c = 0; c < chunks; ++c) {
        const i32 n = a.chunk_counts[static_cast<i64>(c) * a.experts + e];
        total += n;
        before[i] += c < chunk ? n : 0;
      }
      counts[e] = total;
    }
    ops::barrier();
    place_experts<kThreads>(a, counts, first_slot, warp_sums, chunk, chunks);
    ops::barrier();
    for (i32 i = 0; i < kMaxRunExperts; ++i) {
      const i32 e = thread + i * kThreads;
      if (e < a.experts) first_slot[e] += before[i];
    }
    ops::barrier();

    const RouteLayout layout{a.tokens, a.topk, a.experts, a.block_rows};
    const i64 first = chunk * layout.chunk_pairs();
    const i64 last = min_of(first + layout.chunk_pairs(), layout.pairs());
    for (i64 p = first + thread; p < last; p += kThreads) {
      const i32 e = expert_of_pair(a.ids, a.id_type, a.ids_row_stride_elems, p / a.topk, p % a.topk, a.experts);
      if (e >= 0) a.sorted_pairs[ops::atomic_add_shared(&first_slot[e], 1)] = static_cast<i32>(p);
    }
  }

 private:
  static constexpr i32 kMaxRunExperts = static_cast<i32>(ceil_div(kMaxExperts, kThreads));
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_route_place(W4MOE_ARGS(w4moe::RouteArgs) args) {
  w4moe::RoutePlace<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::RouteArgs)
