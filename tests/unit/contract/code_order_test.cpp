// The packed words of 4-bit codes: every bit has one place, packing and unpacking are inverse, and the registers read as values.
#include <random>
#include <set>

#include "contract/code_order.h"
#include "tests/support/catch.hpp"
#include "tests/unit/contract/decode.hpp"

namespace w4moe {
namespace {

struct Pair {
  u32 x = 0;
  u32 y = 0;
};

constexpr Pair pack(const u32 (&registers)[8]) {
  Pair p;
  fp4_pack_pair(registers, p.x, p.y);
  return p;
}

constexpr bool unpacks_to(const Pair& p, const u32 (&registers)[8]) {
  u32 even[4] = {}, odd[4] = {};
  fp4_unpack_even(p.x, p.y, even);
  fp4_unpack_odd(p.x, p.y, odd);
  for (int i = 0; i < 4; ++i) {
    if (even[i] != registers[i] || odd[i] != registers[4 + i]) return false;
  }
  return true;
}

/// Register pairs of codes: every bit under the mask, alone.
constexpr bool every_single_bit_survives() {
  for (int r = 0; r < 8; ++r) {
    for (u32 bit = 0; bit < 32; ++bit) {
      if ((kFp4Mask >> bit & 1u) == 0) continue;
      u32 registers[8] = {};
      registers[r] = 1u << bit;
      if (!unpacks_to(pack(registers), registers)) return false;
    }
  }
  return true;
}
static_assert(every_single_bit_survives(), "the packing is usable in constant expressions");
static_assert(rotate_left(0x80000001u, 1) == 3u && rotate_right(3u, 1) == 0x80000001u && rotate_left(5u, 0) == 5u);
static_assert(rotate_right(7u, 0) == 7u, "a rotation by 0 is no shift by 32");

}  // namespace

TEST_CASE("code order: fp4, each of the 64 bits of two words holds exactly one code bit") {
  std::set<int> places;
  for (int r = 0; r < 8; ++r) {
    for (int bit = 0; bit < 32; ++bit) {
      if ((kFp4Mask >> bit & 1u) == 0) continue;
      u32 registers[8] = {};
      registers[r] = 1u << bit;
      const Pair p = pack(registers);
      int hits = 0, place = -1;
      for (int i = 0; i < 32; ++i) {
        if ((p.x >> i & 1u) != 0) ++hits, place = i;
        if ((p.y >> i & 1u) != 0) ++hits, place = 32 + i;
      }
      REQUIRE(hits == 1);
      REQUIRE(places.insert(place).second);
    }
  }
  CHECK(places.size() == 64);
}

TEST_CASE("code order: fp4, unpacking gives back any eight registers") {
  std::mt19937 rng(1);
  for (int n = 0; n < 20000; ++n) {
    u32 registers[8];
    for (u32& r : registers) r = static_cast<u32>(rng()) & kFp4Mask;
    REQUIRE(unpacks_to(pack(registers), registers));
  }
}

TEST_CASE("code order: fp4, any two words are the packing of the registers that they unpack to") {
  std::mt19937 rng(2);
  for (int n = 0; n < 20000; ++n) {
    const Pair p{static_cast<u32>(rng()), static_cast<u32>(rng())};
    u32 registers[8], even[4], odd[4];
    fp4_unpack_even(p.x, p.y, even);
    fp4_unpack_odd(p.x, p.y, odd);
    for (int i = 0; i < 4; ++i) registers[i] = even[i], registers[4 + i] = odd[i];
    const Pair again = pack(registers);
    REQUIRE(again.x == p.x);
    REQUIRE(again.y == p.y);
  }
}

TEST_CASE("code order: a spread code reads as its value times 2^-126 in bf16") {
  for (u32 code = 0; code < 16; ++code) {
    const u32 half = fp4_spread(code);
    CHECK((half & ~kFp4Mask) == 0);
    CHECK(fp4_gather(half) == code);
    CHECK(test::bf16_value(half) == test::e2m1_value(code) * std::pow(2.0, -126));
    CHECK(std::signbit(test::bf16_value(half)) == (code >= 8));  // -0 keeps its sign
  }
}

TEST_CASE("code order: int4, packing and unpacking are inverse and use every bit once") {
  std::set<u32> words;
  for (u32 i = 0; i < 4; ++i) {
    for (u32 bit : {0u, 1u, 2u, 3u, 16u, 17u, 18u, 19u}) {
      u32 registers[4] = {};
      registers[i] = 1u << bit;
      const u32 word = int4_pack(registers);
      REQUIRE((word & (word - 1)) == 0);
      REQUIRE(words.insert(word).second);
    }
  }
  CHECK(words.size() == 32);
  std::mt19937 rng(3);
  for (int n = 0; n < 10000; ++n) {
    const u32 word = static_cast<u32>(rng());
    u32 registers[4];
    for (u32 i = 0; i < 4; ++i) {
      registers[i] = int4_unpack(word, i);
      REQUIRE((registers[i] & ~0x000f000fu) == 0);
    }
    REQUIRE(int4_pack(registers) == word);
  }
}

}  // namespace w4moe
