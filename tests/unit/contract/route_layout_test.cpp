// How many blocks m tokens can need: the formula against every routing there is.
#include <algorithm>

#include <set>

#include "contract/route_layout.h"
#include "contract/variant.h"
#include "tests/support/catch.hpp"

namespace w4moe {
namespace {

/// Most blocks over all ways to give at most `routes` routes to `experts` experts (ids outside are dropped, so fewer may arrive).
i64 most_blocks(i64 experts, i64 routes, i64 block_rows) {
  if (experts == 0) return 0;
  i64 most = 0;
  for (i64 here = 0; here <= routes; ++here) {
    const i64 blocks = here / block_rows + (here % block_rows != 0 ? 1 : 0);
    most = std::max(most, blocks + most_blocks(experts - 1, routes - here, block_rows));
  }
  return most;
}

static_assert(RouteLayout{64, 8, 160, 8}.max_blocks() == 204);
static_assert(RouteLayout{0, 8, 160, 8}.max_blocks() == 0);
static_assert(sizeof(RouteBlock) == 16);

}  // namespace

TEST_CASE("route layout: max_blocks is the exact maximum over all routings") {
  for (i64 experts = 1; experts <= 4; ++experts) {
    for (i64 tokens = 0; tokens <= 9; ++tokens) {
      for (const i64 topk : {1, 2}) {
        for (const i64 block_rows : {1, 2, 3, 4, 8, 16}) {
          const RouteLayout r{tokens, topk, experts, block_rows};
          REQUIRE(r.pairs() == tokens * topk);
          REQUIRE(r.max_blocks() == most_blocks(experts, tokens * topk, block_rows));
        }
      }
    }
  }
}

TEST_CASE("route layout: more tokens or experts never need fewer blocks, wider blocks never more") {
  for (i64 tokens = 0; tokens < 100; ++tokens) {
    for (i64 experts = 1; experts < 20; ++experts) {
      const i64 blocks = RouteLayout{tokens, 3, experts, 16}.max_blocks();
      REQUIRE(RouteLayout{tokens + 1, 3, experts, 16}.max_blocks() >= blocks);
      REQUIRE(RouteLayout{tokens, 3, experts + 1, 16}.max_blocks() >= blocks);
      REQUIRE(RouteLayout{tokens, 3, experts, 32}.max_blocks() <= blocks);
      REQUIRE(RouteLayout{tokens, 4, experts, 16}.max_blocks() >= blocks);
    }
  }
}

TEST_CASE("N13: a million tokens of 32 routes do not wrap") {
  const RouteLayout r{kMaxTokens, kMaxTopk, kMaxExperts, 8};
  CHECK(r.pairs() == i64{16777216} * 32);
  CHECK(r.max_blocks() == 4096 + (r.pairs() - 4096) / 8);
  CHECK(r.pairs() < (i64{1} << 31));  // slots of a block are 32-bit
}

TEST_CASE("variant: the grid covers every strip of every block once, and its shared memory regions do not overlap") {
  for (const bool fc2 : {false, true}) {
    for (const i64 intermediate : {8, 176, 256, 1440}) {
      for (const i32 warps_rows : {1, 2, 4}) {
        for (const i32 strips : {1, 2}) {
          Variant v;
          v.kind = fc2 ? KernelKind::fc2 : KernelKind::fc1;
          v.hidden = 264;
          v.intermediate = intermediate;
          v.tile.warps_rows = warps_rows;
          v.tile.strips_per_warp = strips;
          REQUIRE(v.row_tiles() * v.tile.tile_strips() >= v.matrix().strips());
          REQUIRE((v.row_tiles() - 1) * v.tile.tile_strips() < v.matrix().strips());
          REQUIRE(v.last_tile_strips() >= 1);
          REQUIRE(v.last_tile_strips() <= v.tile.tile_strips());
          REQUIRE(gemm_grid_x(v, 7, 132) == 7 * v.row_tiles());
          const GemmTile& t = v.tile;
          REQUIRE(t.row_table_offset_bytes() >= t.pipeline_bytes());
          REQUIRE(t.row_table_offset_bytes() >= t.partial_bytes());
          REQUIRE(t.row_scales_offset_bytes() >= t.row_table_offset_bytes() + t.row_table_bytes());
          REQUIRE(t.shared_bytes() >= t.row_scales_offset_bytes() + t.row_scales_bytes());
          REQUIRE(v.shared_bytes() == t.shared_bytes());
        }
      }
    }
  }
  CHECK(combine_vectors(2880) == 360);
  CHECK(combine_vectors(8) == 1);
  CHECK(combine_grid_x(2880, 5) == 8);   // 1800 vectors, 256 a CTA
  CHECK(combine_grid_x(2048, 3) == 3);
  CHECK(combine_grid_x(2056, 1) == 2);
}

TEST_CASE("route layout: an expert's blocks are even, no more of them than full blocks would be, and cover its routes") {
  for (const i32 block_rows : {8, 16, 24, 48, 64, 96, 128, 144}) {
    for (i32 rows = 0; rows <= 700; ++rows) {
      const i32 even = even_block_rows(rows, block_rows);
      REQUIRE(even % 8 == 0);
      REQUIRE(even <= block_rows);
      REQUIRE(ceil_div(rows, even) <= ceil_div(rows, block_rows));
      if (rows > block_rows) REQUIRE(even < ceil_div(rows, ceil_div(rows, block_rows)) + 8);  // no more than rounding to 8 adds
    }
  }
}

TEST_CASE("route layout: the chunks of parallel routing cover all pairs and stay few") {
  for (const i64 topk : {1, 3, 8, 32}) {
    for (const i64 tokens : {0, 1, 63, 64, 300, 1024, 8192, 270000}) {
      const RouteLayout r{tokens, topk, 64, 8};
      REQUIRE(r.chunks() <= kMaxRouteChunks);
      REQUIRE(r.chunks() * r.chunk_pairs() >= r.pairs());
      if (r.pairs() > 0) REQUIRE((r.chunks() - 1) * r.chunk_pairs() < r.pairs());  // none is empty
      REQUIRE(r.chunk_table_bytes() == (r.is_parallel() ? r.chunks() * 64 * 4 : 0));
    }
  }
}

TEST_CASE("wgmma tile: widths, shared memory regions in order, every vector of a unit in a place of its own") {
  const WgmmaTile t{{48, 64, 96}, 2, 2, 4, 1};
  CHECK(t.width_count() == 3);
  CHECK(t.max_width() == 96);
  CHECK(t.width_for(1) == 48);
  CHECK(t.width_for(49) == 64);
  CHECK(t.width_for(96) == 96);
  for (const i64 unit : {544, 576, 608}) {
    CHECK(t.weights_offset_bytes(0, unit) == t.tokens_offset_bytes(t.stages));
    CHECK(t.staging_offset_bytes(unit) >= t.weights_offset_bytes(t.stages, unit));
    CHECK(t.tables_offset_bytes(unit) >= t.staging_offset_bytes(unit) + t.consumer_warps() * t.staging_warp_bytes());
    CHECK(t.barriers_offset_bytes(unit) == t.tables_offset_bytes(unit) + kWgmmaTables * t.table_bytes());
    CHECK(t.barriers_offset_bytes(unit) % 8 == 0);
  }
  CHECK(t.token_unit_bytes() % kSwizzleAtomBytes == 0);
  std::set<i64> places;
  for (i64 row = 0; row < t.max_width(); ++row) {
    for (i64 vector = 0; vector < 8; ++vector) {
      const i64 at = t.token_vector_offset_bytes(row, vector);
      CHECK((at % 16 == 0 && at >= row * kSwizzleRowBytes && at < (row + 1) * kSwizzleRowBytes));
      places.insert(at);
    }
  }
  CHECK(places.size() == 96 * 8);
  Variant v;
  v.kind = KernelKind::fc1;
  v.hidden = 1024;
  v.intermediate = 1000;
  v.family = Family::wgmma;
  v.wgmma = t;
  CHECK(v.block_rows() == 96);
  CHECK(v.row_tiles() == ceil_div(2000, 256));
  CHECK(gemm_items(v, 100) == 800);
  CHECK(gemm_grid_x(v, 100, 132) == 132);  // persistent
  CHECK(gemm_grid_x(v, 1, 132) == 8);
}

}  // namespace w4moe
