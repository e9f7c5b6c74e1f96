// Arguments of the packing and scanning kernels.
#pragma once

#include "contract/args.h"
#include "packing/pack_unit.h"

namespace w4moe {

/// Packs one projection pair (FC1) or one projection (FC2) of `experts` stacked experts. Grid: x over the (unit, lane) pairs of
/// an expert, y over experts.
struct PackArgs {
  SourceView low;                      ///< gate of a gated FC1, otherwise the projection
  SourceView high;                     ///< up of a gated FC1, otherwise the projection again
  const ScanResult* scans = nullptr;   ///< device, [experts][kProjections]
  u8* units = nullptr;                 ///< device, FC1 or FC2 units of the first of the experts
  i64 rows = 0;                        ///< packed rows: MatrixLayout::rows
  i64 k = 0;                           ///< columns: MatrixLayout::k
  Projection low_projection = Projection::gate;
  Projection high_projection = Projection::up;
  u8 gated_fc1 = 0;
};

/// Scans one projection of `experts` stacked experts. Grid: x over the blocks of an expert, y over experts.
struct ScanArgs {
  SourceView view;
  ScanResult* scans = nullptr;         ///< device, [experts][kProjections], initialised by the caller
  Projection projection = Projection::gate;
};

/// Threads of work of one expert, for the grid's x.
W4MOE_HD constexpr i64 pack_items(const MatrixLayout& matrix) { return matrix.strips() * matrix.k_units() * kLanes; }
W4MOE_HD constexpr i64 scan_items(const QuantFormat& format, const SourceView& view) { return view.rows * format.groups(view.k); }

}  // namespace w4moe
