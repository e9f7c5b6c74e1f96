// Parallel routing, first kernel: CTA c counts the routes of each expert among the pairs of chunk c.
#include "contract/args.h"
#include "device/facts.h"
#include "device/route_ids.h"

namespace w4moe {

template <Variant V>
struct RouteCount {
  static constexpr i32 kThreads = V.threads();

  static W4MOE_INLINE void run(const RouteArgs& a) {
    ops::grid_launch_next();
    i32* counts = reinterpret_cast<i32*>(ops::shared_memory());
    const i32 thread = ops::thread_index();
    for (i32 e = thread; e < a.experts; e += kThreads) counts[e] = 0;
    ops::barrier();
    ops::grid_wait();

    const RouteLayout layout{a.tokens, a.topk, a.experts, a.block_rows};
    const i64 first = ops::block_index_x() * layout.chunk_pairs();
    const i64 last = min_of(first + layout.chunk_pairs(), layout.pairs());
    for (i64 p = first + thread; p < last; p += kThreads) {
      const i32 e = expert_of_pair(a.ids, a.id_type, a.ids_row_stride_elems, p / a.topk, p % a.topk, a.experts);
      if (e >= 0) ops::atomic_add_shared(&counts[e], 1);
      if (a.h_amax != nullptr) a.h_amax[p] = 0;
    }
    ops::barrier();
    i32* row = a.chunk_counts + ops::block_index_x() * a.experts;
    for (i32 e = thread; e < a.experts; e += kThreads) row[e] = counts[e];
  }
};

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_route_count(W4MOE_ARGS(w4moe::RouteArgs) args) {
  w4moe::RouteCount<w4moe::kVariant>::run(args);
}
W4MOE_KERNEL_FACTS(w4moe::RouteArgs)
