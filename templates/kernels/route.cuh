// Routing by one CTA: untrusted ids in, blocks of routes by expert out. Ids outside 0..E-1 are dropped; duplicates count each time.
// The order of an expert's routes is free: no result depends on the column a route sits in.
#include "contract/args.h"
#include "device/facts.h"
#include "device/route_blocks.h"
#include "device/route_ids.h"

namespace w4moe {

template <Variant V>
struct Route {
  static constexpr i32 kThreads = V.threads();

  static W4MOE_INLINE void run(const RouteArgs& a) {
    ops::grid_wait();
    ops::grid_launch_next();
    i32* counts = reinterpret_cast<i32*>(ops::shared_memory());
    i32* first_slot = counts + a.experts;
    i32* warp_sums = first_slot + a.experts;

    const i32 thread = ops::thread_index();
    const i64 pairs = a.tokens * a.topk;
    if (!check_control(a, 0, 1, kThreads)) return;

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
    place_experts<kThreads>(a, counts, first_slot, warp_sums, 0, 1);
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
