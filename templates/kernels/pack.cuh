// Checkpoint tensors -> packed units: one thread per lane of a unit. Needs kVariant (kind pack); of it only the format matters,
// so that one cubin packs every shape of a format.
#include "device/facts.h"
#include "packing/pack_args.h"

namespace w4moe {

template <Variant V>
W4MOE_INLINE void pack_units(const PackArgs& args) {
  const i64 expert = ops::block_index_y();
  const i64 item = ops::block_index_x() * V.threads() + ops::thread_index();
  const MatrixLayout matrix{V.format, args.rows, args.k, 1};
  if (item >= pack_items(matrix)) return;
  const i64 lane = item % kLanes;
  const i64 unit_k = item / kLanes % matrix.k_units();
  const i64 strip = item / kLanes / matrix.k_units();

  const SourceView low = source_of_expert(args.low, expert);
  const SourceView high = source_of_expert(args.high, expert);
  const ScanResult* scans = args.scans + expert * kProjections;
  PackRow rows[2];
  strip_rows(args.gated_fc1 != 0, low, high, mx_window(scans[static_cast<i32>(args.low_projection)]).base,
             mx_window(scans[static_cast<i32>(args.high_projection)]).base, strip, lane / 4, rows);
  pack_unit_lane(V.format, rows, unit_k, lane, args.units + matrix.unit_offset_bytes(expert, strip, unit_k));
}

}  // namespace w4moe

W4MOE_KERNEL(w4moe::kVariant.threads(), 1) w4moe_pack(W4MOE_ARGS(w4moe::PackArgs) args) {
  w4moe::pack_units<w4moe::kVariant>(args);
}
W4MOE_KERNEL_FACTS(w4moe::PackArgs)
