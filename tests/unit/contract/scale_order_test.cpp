// The packed scales: every value of every format, through the readings that the kernels use, against decoders in double.
#include <random>
#include <set>

#include "contract/scale_order.h"
#include "tests/support/catch.hpp"
#include "tests/unit/contract/decode.hpp"

namespace w4moe {
namespace {

double half_bf16(u32 pair, int half) { return test::bf16_value(half == 0 ? pair : pair >> 16); }
double half_f16(u32 pair, int half) { return test::f16_value(half == 0 ? pair : pair >> 16); }

/// Significant bits of a number: 1 for powers of two.
int significant_bits(double v) {
  int exponent = 0;
  double m = std::frexp(std::fabs(v), &exponent);
  int bits = 0;
  for (; m != 0; ++bits) {
    m *= 2;
    m -= std::floor(m);
  }
  return bits;
}

/// Places of single bits of the four values in a word: none shared, none lost.
template <class Pack>
std::set<int> bit_places(Pack pack, int bits) {
  std::set<int> places;
  for (int value = 0; value < 4; ++value) {
    for (int bit = 0; bit < bits; ++bit) {
      u32 v[4] = {};
      v[value] = 1u << bit;
      const u32 word = pack(v[0], v[1], v[2], v[3]);
      REQUIRE(word != 0);
      REQUIRE((word & (word - 1)) == 0);
      int place = 0;
      while ((word >> place) != 1u) ++place;
      REQUIRE(places.insert(place).second);
    }
  }
  return places;
}

static_assert(mx_scale_exponent(mx_scale_word(1, 2, 3, 4), 1, 1) == 4, "usable in constant expressions");
static_assert(mx_wide_byte(mx_wide_word(1, 2, 3, 255), 1, 1) == 255);
static_assert(nv_encode_e4m3(0x38) == (22u << 3), "e4m3 0x38 is 1.0");

}  // namespace

TEST_CASE("scale order: no two scale bits share a place in a word") {
  CHECK(bit_places(mx_scale_word, 7).size() == 28);
  CHECK(bit_places(mx_wide_word, 8).size() == 32);
  CHECK(bit_places(nv_scale_word, 8).size() == 32);
}

TEST_CASE("scale order: MXFP4, all exponents round trip in all four places beside any neighbours") {
  std::mt19937 rng(1);
  for (u32 q = 0; q < 128; ++q) {
    for (int place = 0; place < 4; ++place) {
      for (int n = 0; n < 16; ++n) {
        u32 v[4];
        for (u32& other : v) other = static_cast<u32>(rng()) & 127u;
        v[place] = q;
        const u32 word = mx_scale_word(v[0], v[1], v[2], v[3]);
        for (u32 i = 0; i < 4; ++i) REQUIRE(mx_scale_exponent(word, i / 2, i % 2) == v[i]);
      }
    }
  }
}

TEST_CASE("scale order: MXFP4 in bf16, scale times raw code is exactly value * 2^(q-125)") {
  for (u32 q = 0; q < kMxNanCode; ++q) {
    const u32 other = (q * 37 + 11) % 127;
    const u32 word = mx_scale_word(q, other, other, q);
    for (u32 code = 0; code < 16; ++code) {
      const double raw = test::bf16_value(fp4_spread(code));
      const double expected = test::e2m1_value(code) * std::pow(2.0, double(q) - 125);
      REQUIRE(half_bf16(mx_scale_pair_bf16(word, 0), 0) * raw == expected);
      REQUIRE(half_bf16(mx_scale_pair_bf16(word, 1), 1) * raw == expected);
      if (expected != 0) REQUIRE(significant_bits(expected) <= 8);
    }
    REQUIRE(half_bf16(mx_scale_pair_bf16(word, 0), 1) == std::pow(2.0, double(other) + 1));
    REQUIRE(half_bf16(mx_scale_pair_bf16(word, 1), 0) == std::pow(2.0, double(other) + 1));
  }
}

TEST_CASE("N19: every E8M0 byte inside a window keeps its value through base and global factor") {
  for (u32 base = kMxDefaultBase; base < kE8m0Nan; ++base) {
    for (u32 byte = base; byte < base + kMxWindow && byte < kE8m0Nan; ++byte) {
      const u32 q = byte - base;
      REQUIRE(q < kMxNanCode);
      const double scale = half_bf16(mx_scale_pair_bf16(mx_scale_word(q, 0, 0, 0), 0), 0);
      const double global = std::pow(2.0, double(base) - 2);
      REQUIRE(scale * test::bf16_value(fp4_spread(2)) * global == std::pow(2.0, double(byte) - 127));
    }
  }
}

TEST_CASE("N19: the NaN exponent gives NaN with a zero code") {
  const double scale = half_bf16(mx_scale_pair_bf16(mx_scale_word(kMxNanCode, 0, 0, 0), 0), 0);
  CHECK(std::isinf(scale));
  CHECK(std::isnan(scale * test::bf16_value(fp4_spread(0))));
}

TEST_CASE("scale order: MXFP4 wide, all bytes in all places; fp32 bits are 2^(byte-127)") {
  for (u32 byte = 0; byte < 256; ++byte) {
    for (int place = 0; place < 4; ++place) {
      u32 v[4] = {0x5a, 0xa5, 0x3c, 0xc3};
      v[place] = byte;
      const u32 word = mx_wide_word(v[0], v[1], v[2], v[3]);
      for (u32 i = 0; i < 4; ++i) REQUIRE(mx_wide_byte(word, i / 2, i % 2) == v[i]);
    }
    const double value = test::f32_value(e8m0_f32_bits(byte));
    if (byte < kE8m0Nan) REQUIRE(value == std::pow(2.0, double(byte) - 127));
    if (byte == kE8m0Nan) CHECK(std::isinf(value));
  }
}

TEST_CASE("W2: all 256 E4M3 bytes decode exactly, subnormals included, through the bf16 and the fp16 reading") {
  for (u32 byte = 0; byte < 256; ++byte) {
    const double scale = std::fabs(test::e4m3_value(byte));  // the packer moves a sign into the codes
    const u32 encoded = nv_encode_e4m3(byte);
    REQUIRE(encoded <= 0xffu);
    for (u32 step = 0; step < 2; ++step) {
      for (int half = 0; half < 2; ++half) {
        u32 v[4] = {0x91, 0x6e, 0xc7, 0x38};
        v[2 * step + half] = encoded;
        const u32 word = nv_scale_word(v[0], v[1], v[2], v[3]);
        const double bf16 = half_bf16(nv_scale_pair_bf16(word, step), half);
        const double f16 = half_f16(nv_scale_pair_f16(word, step), half);
        if (std::isnan(scale)) {
          REQUIRE(std::isnan(bf16));
          REQUIRE(std::isnan(f16));
          continue;
        }
        if (scale == 0) {  // the codes of such a group are packed as zeros
          REQUIRE(std::isfinite(bf16));
          REQUIRE(std::isfinite(f16));
          continue;
        }
        for (u32 code = 0; code < 16; ++code) {
          const double product = test::e2m1_value(code) * scale / kNvGlobalFactor;
          // bf16 reads the spread code as value * 2^-126; fp16 reads it, three bits further left, as value * 2^-14.
          const u32 spread = fp4_spread(code);
          REQUIRE(test::f16_value((spread & 0x8000u) | ((spread & 0x7fffu) << 3)) == test::e2m1_value(code) * std::pow(2.0, -14));
          REQUIRE(bf16 * test::bf16_value(spread) == product);
          REQUIRE(f16 * test::e2m1_value(code) * std::pow(2.0, -14) == product);
          // and the product is a value of both types, so that the 16-bit multiplication does not round
          REQUIRE(significant_bits(product) <= 8);
          REQUIRE(std::fabs(product) < 65504);
          const double in_f16_steps = product * std::pow(2.0, 24);
          REQUIRE(in_f16_steps == std::floor(in_f16_steps));
        }
      }
    }
  }
}

TEST_CASE("scale order: the sign of an E4M3 byte does not change its encoding") {
  for (u32 byte = 0; byte < 128; ++byte) CHECK(nv_encode_e4m3(byte) == nv_encode_e4m3(byte | 0x80u));
}

}  // namespace w4moe
