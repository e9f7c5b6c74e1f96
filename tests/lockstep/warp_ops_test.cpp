// Collectives of a warp against independent statements of what the PTX manual says.
#include <catch2/catch.hpp>

#include <random>
#include <vector>

#include "tests/lockstep/half.hpp"
#include "tests/lockstep/kernel.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

constexpr Launch kOneWarp{1, 1, 32, 0};

// Fragments of mma.m16n8k16, in the manual's words: groupID = lane >> 2, threadID_in_group = lane % 4;
//   a_i: row = groupID for 0 <= i < 2 || 4 <= i < 6, else groupID + 8; col = threadID_in_group * 2 + (i & 1), + 8 for i >= 4
//   b_i: row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; col = groupID
//   c_i: row = groupID for i < 2, else groupID + 8; col = threadID_in_group * 2 + (i & 1)
template <DType T>
std::vector<float> product(const std::vector<u16>& a, const std::vector<u16>& b, const std::vector<float>& c) {
  std::vector<float> d(16 * 8, -12345.0f);
  REQUIRE_OK(run_threads(kOneWarp, [&] {
    const int group = ops::lane_index() >> 2;
    const int in_group = ops::lane_index() % 4;
    u32 ra[4];
    for (int r = 0; r < 4; ++r) {
      const int row = r == 0 || r == 2 ? group : group + 8;
      const int column = in_group * 2 + (r >= 2 ? 8 : 0);
      ra[r] = a[static_cast<std::size_t>(row * 16 + column)] | (static_cast<u32>(a[static_cast<std::size_t>(row * 16 + column + 1)]) << 16);
    }
    u32 rb[2];
    for (int r = 0; r < 2; ++r) {
      const int row = in_group * 2 + (r >= 1 ? 8 : 0);
      rb[r] = b[static_cast<std::size_t>(row * 8 + group)] | (static_cast<u32>(b[static_cast<std::size_t>((row + 1) * 8 + group)]) << 16);
    }
    const std::size_t at = static_cast<std::size_t>(group * 8 + in_group * 2);
    float rd[4] = {c[at], c[at + 1], c[at + 64], c[at + 65]};
    ops::mma_16816<T>(rd, ra, rb[0], rb[1]);
    d[at] = rd[0];
    d[at + 1] = rd[1];
    d[at + 64] = rd[2];
    d[at + 65] = rd[3];
  }));
  return d;
}

template <DType T>
void check_integers(std::mt19937_64& random) {
  std::vector<u16> a(16 * 16);
  std::vector<u16> b(16 * 8);
  std::vector<float> c(16 * 8);
  const auto integer = [&] { return static_cast<double>(random() % 17) - 8.0; };
  for (u16& v : a) v = half_of(T, integer());
  for (u16& v : b) v = half_of(T, integer());
  for (float& v : c) v = static_cast<float>(integer());
  const std::vector<float> d = product<T>(a, b, c);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      double sum = c[row * 8 + column];
      for (std::size_t k = 0; k < 16; ++k) sum += value_of_half(T, a[row * 16 + k]) * value_of_half(T, b[k * 8 + column]);
      REQUIRE(d[row * 8 + column] == static_cast<float>(sum));
    }
  }
}

}  // namespace

TEST_CASE("mma m16n8k16 multiplies what the fragments hold") {
  std::mt19937_64 random(3);
  check_integers<DType::bf16>(random);
  check_integers<DType::f16>(random);
}

TEST_CASE("mma keeps subnormals, infinities and NaNs where they belong") {
  std::vector<u16> a(16 * 16, 0);
  std::vector<u16> b(16 * 8, 0);
  const std::vector<float> c(16 * 8, 0.0f);
  a[2 * 16 + 5] = 1;                            // 2^-24 in row 2
  a[3 * 16 + 5] = 0x7c00;                       // infinity in row 3
  a[4 * 16 + 6] = 0x7e00;                       // NaN in row 4, where b is zero
  b[5 * 8 + 1] = half_of(DType::f16, 1024.0);   // column 1 only
  const std::vector<float> d = product<DType::f16>(a, b, c);
  CHECK(d[2 * 8 + 1] == 0x1p-14f);
  CHECK(d[2 * 8 + 0] == 0.0f);
  CHECK(std::isinf(d[3 * 8 + 1]));
  CHECK(std::isnan(d[3 * 8 + 0]));  // infinity times zero
  CHECK(std::isnan(d[4 * 8 + 7]));
  CHECK(d[5 * 8 + 1] == 0.0f);
}

TEST_CASE("mma rounds the exact sum of an accumulator and sixteen products once") {
  std::vector<u16> a(16 * 16, half_of(DType::bf16, 1.0));
  std::vector<u16> b(16 * 8, half_of(DType::bf16, 0x1p-20));
  const std::vector<float> c(16 * 8, 16.0f);  // 16 * 2^-20 = 2^-16 is exact beside 16; one step of fp32 there is 2^-19
  CHECK(product<DType::bf16>(a, b, c)[0] == 16.0f + 0x1p-16f);
}

TEST_CASE("ldmatrix gives lane l row l / 4 of each matrix, elements 2 (l % 4) and the next") {
  std::vector<u32> got(32 * 4);
  REQUIRE_OK(run_threads({1, 1, 32, 4 * 8 * 16}, [&] {
    const int lane = ops::lane_index();
    u16* row = reinterpret_cast<u16*>(ops::shared_memory()) + lane * 8;  // lane l fills and names row l % 8 of matrix l / 8
    for (int i = 0; i < 8; ++i) row[i] = static_cast<u16>(lane * 8 + i);
    ops::warp_sync();
    u32 r[4];
    ops::load_matrix_x4(r, row);
    for (int i = 0; i < 4; ++i) got[static_cast<std::size_t>(lane * 4 + i)] = r[i];
  }));
  for (u32 lane = 0; lane < 32; ++lane) {
    for (u32 matrix = 0; matrix < 4; ++matrix) {
      const u32 first = (matrix * 8 + lane / 4) * 8 + 2 * (lane % 4);
      REQUIRE(got[lane * 4 + matrix] == (first | ((first + 1) << 16)));
    }
  }
}

TEST_CASE("Shuffles exchange as the manual says, edges included") {
  std::vector<u32> up(32);
  std::vector<u32> across(32);
  std::vector<u32> from(32);
  REQUIRE_OK(run_threads(kOneWarp, [&] {
    const u32 lane = static_cast<u32>(ops::lane_index());
    up[lane] = ops::shuffle_up(100 + lane, 4);
    across[lane] = ops::shuffle_xor(100 + lane, 5);
    from[lane] = ops::shuffle(100 + lane, lane * 3);
  }));
  for (u32 lane = 0; lane < 32; ++lane) {
    REQUIRE(up[lane] == 100 + (lane < 4 ? lane : lane - 4));  // the first lanes keep their own value
    REQUIRE(across[lane] == 100 + (lane ^ 5u));
    REQUIRE(from[lane] == 100 + lane * 3 % 32);
  }
}
