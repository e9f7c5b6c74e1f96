// Scratch: regions disjoint and aligned, sums equal to totals, monotone in everything that makes a run larger, 64-bit.
#include "contract/scratch_layout.h"
#include "contract/tail_rule.h"
#include "tests/support/catch.hpp"

namespace w4moe {
namespace {

ScratchLayout scratch(i64 hidden, i64 intermediate, i64 topk, i64 tokens, DType dtype, i64 blocks) {
  return ScratchLayout{Shape{hidden, intermediate, 8, topk, tokens}, dtype, blocks};
}

static_assert(ScratchLayout{Shape{512, 256, 8, 2, 0}, DType::bf16, 0}.total_bytes() == kControlBytes + kScratchAlignBytes);
static_assert(ScratchLayout{}.span(Region::control).offset_bytes == 0, "the control region is at 0 in every plan");
static_assert(sizeof(ControlRegion) <= kControlBytes && sizeof(RouteCounts) == 16);

}  // namespace

TEST_CASE("scratch layout: regions are disjoint, aligned, in order, and end at the total, for all small shapes") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const i64 hidden : {8, 64, 2880}) {
      for (const i64 intermediate : {8, 80, 256}) {
        for (const i64 topk : {1, 3, 8}) {
          for (i64 tokens = 0; tokens <= 40; ++tokens) {
            const ScratchLayout s = scratch(hidden, intermediate, topk, tokens, dtype, tokens + 1);
            i64 end = 0;
            for (i32 i = 0; i < kRegionCount; ++i) {
              const RegionSpan span = s.span(static_cast<Region>(i));
              REQUIRE(span.bytes == s.bytes_of(static_cast<Region>(i)));
              if (span.bytes == 0) continue;
              REQUIRE(span.offset_bytes >= end);
              REQUIRE(span.offset_bytes < end + kScratchAlignBytes);
              REQUIRE(span.offset_bytes % kScratchAlignBytes == 0);
              end = span.offset_bytes + span.bytes;
            }
            REQUIRE(s.touched_bytes() == end);
            REQUIRE(s.total_bytes() >= end);
            REQUIRE(s.total_bytes() < end + kScratchAlignBytes);
            REQUIRE(s.total_bytes() % kScratchAlignBytes == 0);
            REQUIRE(s.span(Region::control).offset_bytes == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("scratch layout: regions hold what the kernels put there") {
  const ScratchLayout bf16 = scratch(2880, 1440, 4, 64, DType::bf16, 100);
  CHECK(bf16.bytes_of(Region::sorted_pairs) == 64 * 4 * 4);
  CHECK(bf16.bytes_of(Region::blocks) == 100 * 16);
  CHECK(bf16.bytes_of(Region::h_amax) == 0);
  CHECK(bf16.bytes_of(Region::h) == 64 * 4 * 1440 * 2);
  CHECK(bf16.bytes_of(Region::route_rows) == 64 * 4 * 2880 * 2);
  const ScratchLayout f16 = scratch(2880, 1440, 4, 64, DType::f16, 100);  // fp32 in between, so that nothing overflows
  CHECK(f16.bytes_of(Region::h_amax) == 64 * 4 * 4);
  CHECK(f16.bytes_of(Region::h) == 64 * 4 * 1440 * 4);
  CHECK(f16.bytes_of(Region::route_rows) == 64 * 4 * 2880 * 4);
}

TEST_CASE("scratch layout: a larger run never needs less") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (i64 n = 0; n < 60; ++n) {
      const i64 base = scratch(64, 32, 4, n, dtype, n).total_bytes();
      REQUIRE(scratch(64, 32, 4, n + 1, dtype, n).total_bytes() >= base);
      REQUIRE(scratch(64, 32, 4, n, dtype, n + 1).total_bytes() >= base);
      REQUIRE(scratch(64, 32, 5, n, dtype, n).total_bytes() >= base);
      REQUIRE(scratch(72, 32, 4, n, dtype, n).total_bytes() >= base);
      REQUIRE(scratch(64, 40, 4, n, dtype, n).total_bytes() >= base);
    }
  }
}

TEST_CASE("N13: scratch offsets past 2^31 and 2^32 do not wrap") {
  for (const i64 tokens : {140000, 270000, 1000000}) {
    const ScratchLayout s = scratch(2048, 1024, 8, tokens, DType::bf16, 1000);
    CHECK(s.bytes_of(Region::h) == tokens * 8 * 2048);
    CHECK(s.bytes_of(Region::route_rows) == tokens * 8 * 4096);
    CHECK(s.total_bytes() > tokens * 8 * (2048 + 4096));
  }
  const ScratchLayout most = scratch(kMaxHidden, kMaxIntermediate, kMaxTopk, kMaxTokens, DType::f16, kMaxTokens * kMaxTopk);
  CHECK(most.total_bytes() > kMaxTokens * kMaxTopk * (kMaxHidden + kMaxIntermediate) * 4);
}

TEST_CASE("tail rule: vectors and rows past the end are not real, and partly real ones say how much") {
  for (i64 k = 1; k <= 140; ++k) {
    const TailRule rule{k, k};
    i64 bytes = 0, rows = 0;
    for (i64 first = 0; first < 256; first += 8) {
      const i64 valid = rule.valid_vector_bytes(first, 2);
      REQUIRE(valid >= 0);
      REQUIRE(valid <= 16);
      bytes += valid;
    }
    for (i64 first = 0; first < 256; first += 16) rows += rule.valid_rows(first, 16);
    REQUIRE(bytes == 2 * k);
    REQUIRE(rows == k);
    REQUIRE(rule.k_is_ragged() == (k % 64 != 0));
  }
}

}  // namespace w4moe
