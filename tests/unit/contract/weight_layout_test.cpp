// Packed weights: units, strips, experts and regions never overlap, lie inside the stated total, and hold every element once.
#include <algorithm>

#include <set>
#include <utility>
#include <vector>

#include "contract/weight_layout.h"
#include "tests/support/catch.hpp"
#include "tests/unit/contract/formats.hpp"

namespace w4moe {
namespace {

constexpr UnitLayout kMxUnit{kMxfp4};
static_assert(kMxUnit.unit_bytes() == 544 && UnitLayout{kNvfp4}.unit_bytes() == 576);
static_assert(kUnitCodeBytes == 512 && kLaneCodeBytes == 16 && kUnitSteps == 4 && kRowPairs == 8);
static_assert(ceil_div(0, 8) == 0 && ceil_div(1, 8) == 1 && align_up(17, 16) == 32 && align_up(16, 16) == 16);

}  // namespace

TEST_CASE("unit layout: codes, scales and zero points follow one another inside the unit, for every format") {
  for (const QuantFormat& f : test::all_formats()) {
    const UnitLayout u{f};
    std::vector<int> owner(static_cast<std::size_t>(u.unit_bytes()), 0);
    const auto claim = [&](i64 offset, i64 bytes) {
      for (i64 i = offset; i < offset + bytes; ++i) {
        REQUIRE(i < u.unit_bytes());
        REQUIRE(owner[static_cast<std::size_t>(i)]++ == 0);
      }
    };
    for (i64 lane = 0; lane < kLanes; ++lane) claim(lane * kLaneCodeBytes, kLaneCodeBytes);
    for (i64 pair = 0; pair < kRowPairs; ++pair) {
      claim(u.pair_scale_offset_bytes(pair), u.scale_bytes_per_pair());
      claim(u.pair_zero_offset_bytes(pair), u.zero_bytes_per_pair());
    }
    CHECK(u.unit_bytes() % 16 == 0);
    CHECK(u.unit_bytes() - (u.zero_offset_bytes() + u.zero_bytes()) < 16);
    CHECK(u.scale_offset_bytes() == kUnitCodeBytes);
    // a row pair's scales are one aligned word or two: what a lane reads in one load
    CHECK(u.pair_scale_offset_bytes(1) % u.scale_bytes_per_pair() == 0);
    CHECK(u.groups() >= 1);
    CHECK(u.groups() * (f.group_size == kWholeRow ? kUnitK : f.group_size) >= kUnitK);
    CHECK(u.zero_bytes() == (f.has_zero_point ? u.groups() * kStripRows : 0));
  }
}

TEST_CASE("matrix layout: units are injective, aligned to 16 and fill the total, for all small shapes") {
  for (const QuantFormat& f : {kMxfp4, kNvfp4, QuantFormat{CodeType::u4, ScaleType::bf16, 128, true, false}}) {
    for (i64 rows = 1; rows <= 310; rows += 7) {
      for (i64 k = 8; k <= 264; k += 32) {
        for (const i64 experts : {1, 2, 5}) {
          const MatrixLayout m{f, rows, k, experts};
          i64 next = 0;  // units in (expert, group, k, strip) order are contiguous: injective and without holes
          for (i64 e = 0; e < experts; ++e) {
            for (i64 first = 0; first < m.strips(); first += kGroupStrips) {
              for (i64 u = 0; u < m.k_units(); ++u) {
                for (i64 s = first; s < std::min(first + kGroupStrips, m.strips()); ++s) {
                  REQUIRE(m.unit_offset_bytes(e, s, u) == next);
                  REQUIRE(m.unit_offset_bytes(e, s, u) == m.unit_offset_bytes(e, s, 0) + u * m.unit_stride_bytes(s));
                  REQUIRE(next % 16 == 0);
                  next += m.unit().unit_bytes();
                }
              }
            }
          }
          REQUIRE(m.groups_are_whole() == (m.unit_stride_bytes(0) == m.unit_stride_bytes(m.strips() - 1)));
          REQUIRE(next == m.total_bytes());
          REQUIRE(m.padded_rows() >= rows);
          REQUIRE(m.padded_rows() < rows + kStripRows);
          REQUIRE(m.padded_k() >= k);
          REQUIRE(m.padded_k() < k + kUnitK);
          REQUIRE(m.last_unit_k() >= 1);
          REQUIRE(m.last_unit_k() <= kUnitK);
          REQUIRE((m.last_unit_k() == kUnitK) == (k % kUnitK == 0));
        }
      }
    }
  }
}

TEST_CASE("N02: the distance between experts is the same for all, padded rows and padded K included") {
  for (const i64 hidden : {2880, 1600}) {
    const WeightLayout w{Shape{hidden, 1440, 32, 8, 1}, kMxfp4, true, false};
    for (const MatrixLayout& m : {w.fc1(), w.fc2()}) {
      for (i64 e = 1; e < 32; ++e) {
        REQUIRE(m.unit_offset_bytes(e, 0, 0) - m.unit_offset_bytes(e - 1, 0, 0) == m.expert_stride_bytes());
      }
      CHECK(m.expert_stride_bytes() == m.strips() * m.k_units() * m.unit().unit_bytes());
    }
  }
}

TEST_CASE("N01: packed FC1 rows hold every gate and up row once, and gate and up of a feature in one strip") {
  for (i64 intermediate = 1; intermediate <= 80; ++intermediate) {
    for (const bool gated : {true, false}) {
      const i64 packed = fc1_packed_rows(gated, intermediate);
      REQUIRE(packed % kStripRows == 0);
      std::set<std::pair<i64, bool>> seen;
      for (i64 row = 0; row < packed; ++row) {
        const Fc1Row r = fc1_row(gated, row);
        REQUIRE(r.feature / fc1_strip_features(gated) == row / kStripRows);
        REQUIRE(seen.insert({r.feature, r.is_up}).second);
        if (gated) REQUIRE(fc1_row(gated, row / kStripRows * kStripRows + row % kRowPairs + kRowPairs).feature == r.feature);
      }
      for (i64 feature = 0; feature < intermediate; ++feature) {
        REQUIRE(seen.count({feature, false}) == 1);
        REQUIRE(seen.count({feature, true}) == (gated ? 1u : 0u));
      }
    }
  }
}

TEST_CASE("weight layout: regions follow one another, aligned, inside the total, for all small shapes and formats") {
  for (const QuantFormat& f : test::all_formats()) {
    for (const bool gated : {true, false}) {
      for (const bool bias : {true, false}) {
        for (const i64 hidden : {8, 128, 136, 2880}) {
          for (const i64 intermediate : {8, 80, 256}) {
            const WeightLayout w{Shape{hidden, intermediate, 3, 2, 1}, f, gated, bias};
            const std::pair<i64, i64> regions[] = {{0, w.header_bytes()},
                                                   {w.fc1_offset_bytes(), w.fc1().total_bytes()},
                                                   {w.fc2_offset_bytes(), w.fc2().total_bytes()},
                                                   {w.globals_offset_bytes(), w.globals_bytes()},
                                                   {w.fc1_bias_offset_bytes(), w.fc1_bias_bytes()},
                                                   {w.fc2_bias_offset_bytes(), w.fc2_bias_bytes()}};
            i64 end = 0;
            for (const auto& [offset, bytes] : regions) {
              REQUIRE(offset >= end);
              REQUIRE(offset < end + kRegionAlignBytes);
              REQUIRE(offset % kRegionAlignBytes == 0);
              end = offset + bytes;
            }
            REQUIRE(w.total_bytes() >= end);
            REQUIRE(w.total_bytes() < end + kRegionAlignBytes);
            REQUIRE(w.fc1_bias_bytes() == (bias ? 3 * w.fc1().padded_rows() * 4 : 0));
            REQUIRE(w.fc1().total_bytes() >= w.fc1_checkpoint_bytes());
            REQUIRE(w.fc2().total_bytes() >= w.fc2_checkpoint_bytes());
          }
        }
      }
    }
  }
}

TEST_CASE("weight layout: shapes of whole strips and units have no padding") {
  for (const QuantFormat& f : {kMxfp4, kMxfp4Wide, kNvfp4, QuantFormat{CodeType::u4, ScaleType::bf16, 32, false, false},
                               QuantFormat{CodeType::u4, ScaleType::f16, 64, false, false}}) {
    const WeightLayout w{Shape{2880, 1536, 4, 8, 1}, f, true, false};
    CHECK(w.fc1().total_bytes() == w.fc1_checkpoint_bytes());
    CHECK(w.fc2().total_bytes() == w.fc2_checkpoint_bytes());
  }
}

TEST_CASE("N13: offsets past 2^31 and 2^32 bytes do not wrap") {
  const WeightLayout w{Shape{4096, 1024, 513, 8, 1}, kMxfp4, true, true};
  const MatrixLayout m = w.fc1();
  const i64 per_expert = i64{2048 / 16} * (4096 / 64) * 544;
  CHECK(m.unit_offset_bytes(512, 127, 63) == 512 * per_expert + per_expert - 544);
  CHECK(m.unit_offset_bytes(512, 0, 0) > (i64{1} << 31));
  CHECK(w.fc2_offset_bytes() > (i64{1} << 31));
  CHECK(w.globals_offset_bytes() > w.fc2_offset_bytes());
  const WeightLayout huge{Shape{kMaxHidden, kMaxIntermediate, kMaxExperts, 32, kMaxTokens}, kNvfp4, true, true};
  CHECK(huge.total_bytes() > (i64{1} << 46));
  CHECK(huge.fc2().unit_offset_bytes(kMaxExperts - 1, 0, 0) > (i64{1} << 44));
}

}  // namespace w4moe
