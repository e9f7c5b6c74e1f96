// Which tile a GEMM kernel gets: by format class, by how many CTAs the launch has, by the length of K.
#pragma once

#include "generator/plan/rules.hpp"
#include "w4moe/device.hpp"
#include "w4moe/problem.hpp"

namespace w4moe {

TileClass tile_class(const Problem& problem);

/// Tile of FC1 or FC2 for blocks of `rule`'s width when `tokens` tokens run. `split_k`: it may share K between warps, which sums in
/// another order.
const TileChoice& choose_tile(const Problem& problem, const DeviceSpec& device, KernelKind kind, const TileRule& rule, i64 tokens,
                              bool split_k = true);

/// The tile where CTAs find their blocks themselves: few routes, hence few CTAs.
const TileChoice& choose_self_routed_tile(const Problem& problem, const DeviceSpec& device, KernelKind kind, const TileRule& rule, i64 tokens);

/// Whether the few routes of `tokens` tokens fill w16's persistent CTAs well enough to be faster than the portable family's, which
/// may save the routing kernel.
bool wgmma_fills(const Problem& problem, const DeviceSpec& device, i64 tokens, bool saves_route);

/// Kernels of a direct launch.
struct DirectChoice {
  KernelKind kind;
  GemmTile tile;
};
DirectChoice direct_fc1_tile(const Problem& problem, const DeviceSpec& device);
DirectChoice direct_fc2_tile(const Problem& problem, const DeviceSpec& device);

}  // namespace w4moe
