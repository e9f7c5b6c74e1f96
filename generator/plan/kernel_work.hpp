// What a GEMM kernel of a launch has to do, in counts: what the cost model turns into time. The counts hold for random routing,
// on average; sizes come from the contract.
#pragma once

#include "contract/args.h"
#include "w4moe/device.hpp"

namespace w4moe {

/// Blocks of routes when every token takes top-k experts at random.
struct ExpectedRouting {
  double experts = 0;  ///< experts with at least one route
  double blocks = 0;   ///< blocks of routes
  double columns = 0;  ///< columns that the kernels compute for them, empty ones included
};

/// Of `tokens` tokens, cut into blocks as kernel `v` takes them: its widths, and even_block_rows().
ExpectedRouting expected_routing(const Variant& v, const Shape& shape, i64 tokens);

struct KernelWork {
  double weight_bytes = 0;   ///< packed weights of the touched experts, read once each
  double reread_bytes = 0;   ///< of further blocks of the same expert, mostly out of L2
  double output_bytes = 0;   ///< h or route rows written
  double unit_visits = 0;    ///< packed units unpacked, once for each block
  double unit_columns = 0;   ///< 16 x 64 x 8 products
  double items = 0;          ///< tiles of rows times blocks
  double slots = 0;          ///< items that the device holds at a time
  double chain = 0;          ///< steps of one item's K loop, one after another
  double sms = 0;
};

/// Work of `v` (FC1 or FC2, with routing or direct) in a launch of `tokens` tokens. `touched`: experts with a route where they are
/// known (measurements), 0 where the average is to be taken.
KernelWork kernel_work(const Variant& v, const Shape& shape, const DeviceSpec& device, i64 tokens, double touched = 0);

}  // namespace w4moe
