// Checkpoint scales -> the range of exponents and the first NaN of each projection: one thread per block, one atomic per warp.
// Needs kVariant (kind scan); of it only the format matters.
#include "device/facts.h"
#include "packing/pack_args.h"

namespace w4moe {

template <Variant V>
W4MOE_INLINE void scan_blocks(const ScanArgs& args) {
  const i64 expert = ops::block_index_y();
  const i64 item = ops::block_index_x() * V.threads() + ops::thread_index();
  const SourceView view = source_of_expert(args.view, expert);
  const i64 groups = V.format.groups(view.k);

  ScanResult mine;
  if (item < scan_items(V.format, view)) scan_block(V.format, view, item / groups, item % groups, mine);
  for (u32 mask = kLanes / 2; mask > 0; mask /= 2) {  // min and max in any order give the same result
    const u32 min_byte = ops::shuffle_xor(mine.min_byte, mask);
    const u32 max_byte = ops::shuffle_xor(mine.max_byte, mask);
    const u32 first_nan = ops::shuffle_xor(mine.first_nan, mask);
    if (min_byte < mine.min_byte) mine.min_byte = min_byte;
    if (max_byte > mine.max_byte) mine.max_byte = max_byte;
    if (first_nan < mine.first_nan) mine.first_nan = first_nan;
  }
  if (ops::lane_index() != 0) return;
  ScanResult* result = args.scans + expert * kProjections + static_cast<i32>(args.projection);
  if (mine.min_byte <= mine.max_byte) {
    ops::atomic_min(&result->min_byte, mine.min_byte);
    ops::atomic_max(&result->max_byte, mine.max_byte);
  }
  if (mine.first_nan != ScanResult{}.first_nan) ops::atomic_min(&result->first_nan, mine.first_nan);
}

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_scan(W4MOE_ARGS(w4moe::ScanArgs) args) {
  w4moe::scan_blocks<w4moe::kVariant>(args);
}
W4MOE_KERNEL_FACTS(w4moe::ScanArgs)
