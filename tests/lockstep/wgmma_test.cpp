// wgmma with register operand A, and stmatrix: what they compute, and when it may be seen.
#include <catch2/catch.hpp>

#include <cstring>

#include "tests/lockstep/kernel.hpp"

#if !defined(__SANITIZE_THREAD__)

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

constexpr i32 kTokens = 16;

float a_value(int row, int k) { return static_cast<float>((row * 3 + k * 5) % 13 - 6); }
float b_value(int token, int k) { return static_cast<float>((token * 7 + k * 2) % 11 - 5); }

u32 bf16_pair(float lo, float hi) { return bf16_bits(lo) | bf16_bits(hi) << 16; }

/// Tokens of 64 K in shared memory: 16-byte vectors swizzled inside groups of eight rows, unless a fault is wanted.
void store_tokens(bool swizzled = true) {
  for (i32 i = ops::thread_index(); i < kTokens * 8; i += 128) {
    const i32 token = i / 8;
    const i32 vector = i % 8;
    ops::U32x4 v;
    for (i32 j = 0; j < 4; ++j) v.v[j] = bf16_pair(b_value(token, vector * 8 + 2 * j), b_value(token, vector * 8 + 2 * j + 1));
    ops::store_shared_x4(ops::shared_memory() + token * 128 + (swizzled ? (vector ^ token) & 7 : vector) * 16, v);
  }
}

struct Registers {
  u32 a[4][4];
  float d[kTokens / 2];
};

/// The fragments of 64 rows by 64 K.
void load_registers(Registers& r) {
  const i32 row = ops::warp_index() * 16 + ops::lane_index() / 4;
  for (i32 step = 0; step < 4; ++step) {
    for (i32 i = 0; i < 4; ++i) {
      const i32 k = step * 16 + 2 * (ops::lane_index() % 4) + (i >= 2 ? 8 : 0);
      r.a[step][i] = bf16_pair(a_value(row + i % 2 * 8, k), a_value(row + i % 2 * 8, k + 1));
    }
  }
  for (float& d : r.d) d = 1.0f;
}

using Rs = ops::WgmmaRs<DType::bf16, kTokens>;

void start(Registers& r, i32 step) { Rs::add(r.d, r.a[step], ops::wgmma_tokens(ops::shared_memory()) + 2 * static_cast<u64>(step)); }

float result[64][kTokens];

void keep(const Registers& r) {
  for (i32 i = 0; i < kTokens / 2; ++i) {
    const i32 row = ops::warp_index() * 16 + ops::lane_index() / 4 + (i % 4 >= 2 ? 8 : 0);
    result[row][i / 4 * 8 + 2 * (ops::lane_index() % 4) + i % 2] = r.d[i];
  }
}

bool is_right(i32 steps) {
  for (int row = 0; row < 64; ++row) {
    for (int token = 0; token < kTokens; ++token) {
      float sum = 1.0f;
      for (int k = 0; k < 16 * steps; ++k) sum += a_value(row, k) * b_value(token, k);
      if (result[row][token] != sum) return false;
    }
  }
  return true;
}

constexpr Launch kWarpgroup{1, 1, 128, 2048};

}  // namespace

TEST_CASE("wgmma adds A of registers times B of swizzled shared rows, a k16 step at a time") {
  REQUIRE_OK(run_threads(kWarpgroup, [] {
    store_tokens();
    ops::fence_async_shared();
    ops::barrier();
    Registers r;
    load_registers(r);
    for (i32 step = 0; step < 4; ++step) {
      ops::wgmma_fence();
      start(r, step);
      ops::wgmma_commit();
    }
    ops::wgmma_wait<0>();
    keep(r);
  }));
  CHECK(is_right(4));
}

TEST_CASE("Accumulators are NaNs until their wgmmas are waited for") {
  static bool early_nan = false;
  REQUIRE_OK(run_threads(kWarpgroup, [] {
    store_tokens();
    ops::barrier();
    ops::fence_async_shared();  // by who reads, after the barrier, will do as well
    Registers r;
    Registers other;
    load_registers(r);
    load_registers(other);
    ops::wgmma_fence();
    start(r, 0);
    ops::wgmma_commit();
    start(other, 0);
    ops::wgmma_commit();
    early_nan = r.d[0] != r.d[0];
    ops::wgmma_wait<1>();
    keep(r);
    if (other.d[0] == other.d[0]) early_nan = false;
    ops::wgmma_wait<0>();
  }));
  CHECK(early_nan);
  CHECK(is_right(1));
}

TEST_CASE("Planted fault: wrong swizzle gives wrong numbers") {
  REQUIRE_OK(run_threads(kWarpgroup, [] {
    store_tokens(false);
    ops::fence_async_shared();
    ops::barrier();
    Registers r;
    load_registers(r);
    ops::wgmma_fence();
    start(r, 0);
    ops::wgmma_commit();
    ops::wgmma_wait<0>();
    keep(r);
  }));
  CHECK_FALSE(is_right(1));
}

TEST_CASE("Planted faults around wgmma are reported: fences, barriers, registers, shared memory still in use, no wait") {
  const auto body = [](auto change) {
    return [change] {
      store_tokens();
      if (change != 1) ops::fence_async_shared();
      if (change != 2) ops::barrier();
      Registers r;
      load_registers(r);
      if (change != 3) ops::wgmma_fence();
      start(r, 0);
      ops::wgmma_commit();
      if (change == 4) r.a[0][1] = 0;
      if (change == 5) {
        ops::barrier();
        store_tokens();
      }
      if (change != 6) ops::wgmma_wait<0>();
    };
  };
  REQUIRE_OK(run_threads(kWarpgroup, body(0)));
  expect_report(kWarpgroup, "no fence_async_shared in between", body(1));
  expect_report(kWarpgroup, "with no barrier in between", body(2));
  expect_report(kWarpgroup, "without a wgmma_fence", body(3));
  expect_report(kWarpgroup, "was changed before the wgmma was waited for", body(4));
  expect_report(kWarpgroup, "stores to 16 bytes that a wgmma reads", body(5));
  expect_report(kWarpgroup, "exits with wgmmas that it has not waited for", body(6));
}

TEST_CASE("Descriptors that leave their rows or shared memory are reported") {
  const auto body = [](u64 moved) {
    return [moved] {
      Registers r;
      load_registers(r);
      ops::wgmma_fence();
      Rs::add(r.d, r.a[0], ops::wgmma_tokens(ops::shared_memory()) + moved);
    };
  };
  expect_report(kWarpgroup, "leave their row", body(7));
  expect_report(kWarpgroup, "a group of eight rows begins", body(8));
  expect_report(kWarpgroup, "of 2048 bytes of shared memory", body(64));
  expect_report(kWarpgroup, "is not one of wgmma_tokens()", body(1ull << 20));
}

TEST_CASE("stmatrix, transposed: columns held by lanes become rows in shared memory") {
  static u16 out[4][8][8];
  REQUIRE_OK(run_threads({1, 1, 32, 512}, [] {
    const i32 lane = ops::lane_index();
    u32 r[4];
    for (u32 m = 0; m < 4; ++m) {
      const u32 row = 2 * (static_cast<u32>(lane) % 4);
      const u32 column = static_cast<u32>(lane) / 4;
      r[m] = (m * 64 + row * 8 + column) | (m * 64 + (row + 1) * 8 + column) << 16;
    }
    ops::store_matrix_x4_transposed(ops::shared_memory() + lane * 16, r[0], r[1], r[2], r[3]);
    ops::warp_sync();
    std::memcpy(out[lane / 8][lane % 8], ops::shared_memory() + lane * 16, 16);
  }));
  for (int m = 0; m < 4; ++m) {
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) REQUIRE(out[m][row][column] == m * 64 + row * 8 + column);
    }
  }
}

#endif
