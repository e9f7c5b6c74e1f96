// 16-bit arithmetic of the host backend against arithmetic on doubles.
#include <catch2/catch.hpp>

#include <random>

#include "tests/lockstep/half.hpp"
#include "tests/lockstep/kernel.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

bool same(double a, double b) { return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b)); }

template <DType T>
void check_all_values() {
  int wrong = 0;
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const double value = value_of_half(T, bits);
    const u32 pair = bits | (bits << 16);
    if (!same(ops::unpack_lo<T>(pair & 0xffffu), value) || !same(ops::unpack_hi<T>(pair), value)) ++wrong;
    if (!std::isnan(value) && ops::pack2<T>(static_cast<float>(value), 0.0f) != bits) ++wrong;
  }
  CHECK(wrong == 0);
}

template <DType T>
void check_rounding(std::mt19937_64& random) {
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    float v = ops::float_of(static_cast<u32>(random()));
    if (i % 2 == 0) {  // exactly between two neighbours, or one bit off: where rounding goes wrong
      const u32 bits = static_cast<u32>(random()) & 0xffffu;
      const double here = value_of_half(T, bits);
      const double next = value_of_half(T, bits + 1);
      if (!std::isfinite(here) || !std::isfinite(next)) continue;
      v = static_cast<float>((here + next) / 2);
      if (i % 4 == 0) v = std::nextafter(v, i % 8 == 0 ? 1e30f : -1e30f);
    }
    if (ops::pack2<T>(v, v) != half_of(T, v) * 0x00010001u) ++wrong;
  }
  CHECK(wrong == 0);
}

template <DType T>
void check_pairs(std::mt19937_64& random) {
  int wrong = 0;
  for (int i = 0; i < 200000; ++i) {
    const u32 a = static_cast<u32>(random());
    const u32 b = static_cast<u32>(random());
    // long double: 64 bits of significand hold every product, and every difference that is not decided by the larger operand
    const auto expect = [&](auto operation) {
      const u32 lo = half_of(T, operation(value_of_half(T, a & 0xffffu), value_of_half(T, b & 0xffffu)));
      return lo | (static_cast<u32>(half_of(T, operation(value_of_half(T, a >> 16), value_of_half(T, b >> 16)))) << 16);
    };
    if (ops::mul2<T>(a, b) != expect([](double x, double y) { return x * y; })) ++wrong;
    if (ops::sub2<T>(a, b) != expect([](double x, double y) { return x - y; })) ++wrong;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("Every 16-bit value is read exactly and written back") {
  check_all_values<DType::bf16>();
  check_all_values<DType::f16>();
}

TEST_CASE("Floats round to 16 bits to nearest even, subnormals and overflow included") {
  std::mt19937_64 random(1);
  check_rounding<DType::bf16>(random);
  check_rounding<DType::f16>(random);
  CHECK(ops::pack2<DType::f16>(65519.0f, 65520.0f) == 0x7c007bffu);
  CHECK(ops::pack2<DType::f16>(0x1p-25f, 0x1.8p-25f) == 0x00010000u);
  CHECK(ops::pack2<DType::bf16>(std::numeric_limits<float>::quiet_NaN(), -0.0f) == 0x80007fffu);
}

TEST_CASE("Pair products and differences are rounded once") {
  std::mt19937_64 random(2);
  check_pairs<DType::bf16>(random);
  check_pairs<DType::f16>(random);
  // a raw FP4 code is a bf16 subnormal, 0.5 * 2^-126; times 2^126 it must come out as 0.5
  CHECK(ops::mul2<DType::bf16>(0x00400040u, 0x7e807e80u) == 0x3f003f00u);
  CHECK(ops::broadcast_lo(0x12345678u) == 0x56785678u);
  CHECK(ops::broadcast_hi(0x12345678u) == 0x12341234u);
}
