// The rows of a block of routes, as every thread of a CTA sees them.
#pragma once

#include "contract/prelude.h"
#include "device/ops.h"

namespace w4moe {

struct BlockRow {
  i64 source_row = 0;   ///< row of x (FC1) or of h (FC2)
  i32 pair = -1;        ///< route: token * topk + j; -1 past the block's end
  float factor = 1.0f;  ///< router weight (FC2; FC1 where it goes on the input)
};
static_assert(sizeof(BlockRow) == 16, "row_table_bytes() counts 16 bytes a row");

}  // namespace w4moe
