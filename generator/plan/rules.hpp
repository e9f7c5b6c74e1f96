// What the planner picks from, as data: kernel families, their tiles, and up to how many routes per expert each tile serves.
#pragma once

#include <array>
#include <string_view>

#include "contract/variant.h"

namespace w4moe {

/// A block width and its place in the ladder: it serves token counts with at most this many routes per touched expert on average.
struct TileRule {
  std::string_view pin;          ///< "n16", "w48": family and block width
  i64 max_average_routes = 0;    ///< 0: no upper end
  Family family = Family::portable;
};

inline constexpr std::array<TileRule, 4> kPortableRules{{{"n8", 4}, {"n16", 14}, {"n32", 40}, {"n64", 0}}};

/// The ladder where the wgmma family serves. Within the first rule, w16 takes over from n8 where its tall tiles come out even on the
/// multiprocessors: wgmma_fills(). An expert's routes are cut into blocks of one size, so beyond 85 routes whichever leaves less of
/// its last width empty takes turns. Between the measured cells an end lies where the cost model sees both neighbours level, or
/// between two points of a scan on the GPU: docs/benchmarks/prefill-notes.md.
inline constexpr std::array<TileRule, 14> kWgmmaRules{{{"n8", 2},
                                                      {"w16", 8, Family::wgmma},
                                                      {"w24", 17, Family::wgmma},
                                                      {"w48", 38, Family::wgmma},
                                                      {"w96", 85, Family::wgmma},
                                                      {"w128", 114, Family::wgmma},
                                                      {"w144", 141, Family::wgmma},
                                                      {"w96", 160, Family::wgmma},
                                                      {"w128", 228, Family::wgmma},
                                                      {"w144", 288, Family::wgmma},
                                                      {"w128", 367, Family::wgmma},
                                                      {"w144", 439, Family::wgmma},
                                                      {"w128", 500, Family::wgmma},
                                                      {"w144", 0, Family::wgmma}}};

struct WgmmaChoice {
  std::string_view pin;
  WgmmaTile tile;
};

/// {widths, blocks_per_group, stage_units, stages, steps_per_group}. Measured on an H200: docs/benchmarks/prefill-notes.md.
inline constexpr std::array<WgmmaChoice, 6> kWgmmaTiles{{
    {"w16", WgmmaTile{{8, 16}, 2, 4, 4, 2}},
    {"w24", WgmmaTile{{8, 16, 24}, 2, 4, 4, 2}},
    {"w48", WgmmaTile{{24, 32, 48}, 2, 2, 6, 2}},
    {"w96", WgmmaTile{{48, 64, 80, 96}, 2, 2, 4, 1}},
    {"w128", WgmmaTile{{96, 112, 128}, 2, 2, 4, 1}},
    {"w144", WgmmaTile{{128, 144}, 2, 2, 3, 1}},
}};

/// Fewest 16-row strips of both matrices for which the wgmma family's tiles are not mostly empty.
inline constexpr i64 kWgmmaMinStrips = 16;

/// How much longer the last, partly filled wave of CTAs may make w16's kernels, at most, for them to be faster than n8's: measured
/// gains are about 1.2 with MXFP4; 1.12 with NVFP4, nothing where its K is short as well.
struct WaveLoss {
  double mxfp4 = 1.2;
  double nvfp4 = 1.12;
  double nvfp4_short = 1.04;
};
inline constexpr WaveLoss kWgmmaWaveLoss;

/// Time of a routing kernel against the layers that can do without.
inline constexpr double kRouteShare = 0.04;

/// What a tile has to suit besides the block width. Measured on an H200; docs/benchmarks/portable-notes.md has the figures.
enum class TileUse {
  many,     ///< the usual one: enough CTAs to fill the device several times over
  few,      ///< fewer CTAs than the device holds at a time: small tiles, K split between warps
  short_k,  ///< FC2 with K of a few units: a stage holds all of it
};

/// Formats by what their unpacking asks of registers.
enum class TileClass {
  mxfp4,  ///< bf16, scale on the weight, one scale word per unit
  nvfp4,  ///< bf16, scale on the weight, two scale words per unit
  other,  ///< fp16, INT4, wide exponents: more registers, so fewer CTAs per SM
};

struct TileChoice {
  TileClass format;
  std::string_view pin;
  TileUse use;
  GemmTile tile;
};

/// {block_rows, warps_rows, warps_k, strips_per_warp, units_per_warp, stages, min_ctas_per_sm}. A missing `few` or `short_k`
/// means that `many` serves there too.
inline constexpr std::array<TileChoice, 18> kPortableTiles{{
    {TileClass::mxfp4, "n8", TileUse::many, GemmTile{8, 4, 1, 2, 4, 4, 3}},
    {TileClass::mxfp4, "n8", TileUse::few, GemmTile{8, 2, 2, 1, 4, 3, 5}},
    {TileClass::mxfp4, "n8", TileUse::short_k, GemmTile{8, 4, 1, 2, 2, 4, 4}},
    {TileClass::mxfp4, "n16", TileUse::many, GemmTile{16, 4, 1, 2, 2, 4, 4}},
    {TileClass::mxfp4, "n32", TileUse::many, GemmTile{32, 4, 1, 2, 2, 4, 3}},
    {TileClass::mxfp4, "n64", TileUse::many, GemmTile{64, 4, 1, 2, 2, 3, 2}},
    {TileClass::nvfp4, "n8", TileUse::many, GemmTile{8, 4, 1, 1, 4, 4, 5}},
    {TileClass::nvfp4, "n8", TileUse::few, GemmTile{8, 2, 2, 1, 4, 3, 5}},
    {TileClass::nvfp4, "n8", TileUse::short_k, GemmTile{8, 4, 1, 2, 2, 4, 4}},
    {TileClass::nvfp4, "n16", TileUse::many, GemmTile{16, 4, 1, 2, 2, 4, 4}},
    {TileClass::nvfp4, "n32", TileUse::many, GemmTile{32, 4, 1, 2, 2, 4, 3}},
    {TileClass::nvfp4, "n64", TileUse::many, GemmTile{64, 4, 1, 2, 2, 3, 2}},
    {TileClass::other, "n8", TileUse::many, GemmTile{8, 4, 1, 1, 4, 4, 3}},
    {TileClass::other, "n8", TileUse::few, GemmTile{8, 2, 2, 1, 4, 3, 3}},
    {TileClass::other, "n8", TileUse::short_k, GemmTile{8, 4, 1, 1, 2, 4, 3}},
    {TileClass::other, "n16", TileUse::many, GemmTile{16, 4, 1, 1, 2, 4, 3}},
    {TileClass::other, "n32", TileUse::many, GemmTile{32, 4, 1, 1, 2, 4, 2}},
    {TileClass::other, "n64", TileUse::many, GemmTile{64, 4, 1, 1, 2, 3, 2}},
}};

inline constexpr std::string_view kPortableFamily = "portable";
inline constexpr std::string_view kWgmmaFamily = "wgmma";

/// FC2 with at most this many units of K counts as short.
inline constexpr i64 kShortKUnits = 8;

/// K of this many units counts as long.
inline constexpr i64 kLongKUnits = 64;

/// Most pairs of token and route for which CTAs find their blocks in the ids: measured gains of 3 us at 8 to 32 pairs, nothing at
/// 64, losses at 128 (docs/benchmarks/portable-notes.md).
inline constexpr i64 kSelfRoutedPairs = 48;

/// A direct launch (one token). FC1 of few strips with a long K takes the direct kernel, whose warps share the K of a strip:
/// {.., strips, warps per strip, .., units under way, .., CTAs per SM}. Otherwise a CTA of the portable kernel per 64 packed rows
/// and route.
inline constexpr GemmTile kDirectFc1OneStrip{8, 1, 8, 1, 6, 1, 2};
inline constexpr GemmTile kDirectFc1TwoStrips{8, 2, 4, 1, 6, 1, 2};
inline constexpr GemmTile kDirectFc1Few{8, 2, 4, 1, 2, 3, 3};
inline constexpr GemmTile kDirectFc1Many{8, 4, 1, 1, 8, 3, 3};
inline constexpr GemmTile kDirectFc1Most{8, 2, 2, 1, 4, 4, 4};
/// FC2: a CTA per 16 hidden columns, as many CTAs per SM as put all of them there at once, up to four.
inline constexpr GemmTile kDirectFc2Two{8, 1, 16, 1, 2, 1, 2};
inline constexpr GemmTile kDirectFc2Three{8, 1, 8, 1, 3, 1, 3};
inline constexpr GemmTile kDirectFc2Four{8, 1, 8, 1, 2, 1, 4};

/// Fewest stages of tokens that still overlap loading with arithmetic.
inline constexpr i32 kMinStages = 2;

/// The same for the wgmma family, whose consumers free a stage only once they have the next.
inline constexpr i32 kMinWgmmaStages = 3;

/// Shared memory that the driver keeps for itself per resident CTA (compute capability 8.0 and later).
inline constexpr i64 kReservedSharedBytesPerCta = 1024;

}  // namespace w4moe
