// What the planner picks from, as data: kernel families, their tiles, and up to how many routes per expert each tile serves.
#pragma once

#include <array>
#include <string_view>

#include "contract/variant.h"

namespace w4moe {

/// A tile and its place in the ladder: it serves token counts with at most this many routes per touched expert on average.
struct TileRule {
  std::string_view pin;          ///< "n16": the name of the block width
  i64 max_average_routes = 0;    ///< 0: no upper end
  GemmTile tile{};
};

/// The portable family (mma.sync, cp.async; every target), narrowest block first.
inline constexpr std::array<TileRule, 4> kPortableTiles{{
    {"n8", 4, GemmTile{8, 4, 2, 1, 4, 3, 2}},
    {"n16", 12, GemmTile{16, 4, 2, 1, 4, 3, 2}},
    {"n32", 24, GemmTile{32, 4, 2, 2, 2, 3, 1}},
    {"n64", 0, GemmTile{64, 4, 2, 2, 1, 4, 1}},
}};

inline constexpr std::string_view kPortableFamily = "portable";

/// Fewest stages of tokens that still overlap loading with arithmetic.
inline constexpr i32 kMinStages = 2;

/// Shared memory that the driver keeps for itself per resident CTA (compute capability 8.0 and later).
inline constexpr i64 kReservedSharedBytesPerCta = 1024;

}  // namespace w4moe
