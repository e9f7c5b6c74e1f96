// cp.async: zero fill, groups, and the faults around them that a GPU lets pass in silence most of the time.
#include <catch2/catch.hpp>

#include <cstring>
#include <vector>

#include "tests/lockstep/kernel.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

alignas(16) u8 source[1024];

void fill_source() {
  for (std::size_t i = 0; i < sizeof source; ++i) source[i] = static_cast<u8>(i % 251);
}

constexpr Launch kWarp{1, 1, 32, 1024};
constexpr Launch kTwoWarps{1, 1, 64, 1024};

u8* slot(int i) { return ops::shared_memory() + 16 * i; }

}  // namespace

TEST_CASE("A copy brings its valid bytes and zeros behind them") {
  fill_source();
  std::vector<u8> got(32 * 16);
  REQUIRE_OK(run_threads(kWarp, [&] {
    const int lane = ops::lane_index();
    ops::copy16_async(slot(lane), source + 16 * lane, lane % 17);
    ops::copy_commit();
    ops::copy_wait<0>();
    std::memcpy(got.data() + 16 * lane, slot(lane), 16);
  }));
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t i = 0; i < 16; ++i) REQUIRE(got[lane * 16 + i] == (i < lane % 17 ? source[lane * 16 + i] : 0));
  }
}

TEST_CASE("Waiting for all but N groups lands the oldest ones") {
  fill_source();
  bool landed[3] = {};
#if !defined(__SANITIZE_ADDRESS__)
  bool poisoned = false;
#endif
  REQUIRE_OK(run_threads(kWarp, [&] {
    if (ops::lane_index() != 0) return;
    const auto has = [&](int i) { return std::memcmp(slot(i), source + 16 * i, 16) == 0; };
    for (int i = 0; i < 3; ++i) {
      ops::copy16_async(slot(i), source + 16 * i, 16);
      ops::copy_commit();
    }
    ops::copy_wait<2>();
    landed[0] = has(0);
#if !defined(__SANITIZE_ADDRESS__)  // which would stop at this read
    poisoned = slot(1)[0] == 0xff && slot(2)[15] == 0xff;
#endif
    ops::copy_wait<1>();
    landed[1] = has(1);
    ops::copy_wait<0>();
    landed[2] = has(2);
  }));
  CHECK(landed[0]);
  CHECK(landed[1]);
  CHECK(landed[2]);
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(poisoned);
#endif
}

TEST_CASE("A copy that was not committed is not waited for") {
  fill_source();
  expect_report(kWarp, "copies and has not waited for", [] {
    ops::copy16_async(slot(ops::lane_index()), source, 16);
    ops::copy_wait<0>();
    ops::warp_sync();
    u32 r[4];
    ops::load_matrix_x4(r, slot(ops::lane_index()));
  });
}

TEST_CASE("Planted fault: a matrix load before the wait is reported with its line") {
  fill_source();
  expect_report(kWarp, "copy_test.cpp:", [] {
    ops::copy16_async(slot(ops::lane_index()), source, 16);
    ops::copy_commit();
    ops::copy_wait<1>();
    u32 r[4];
    ops::load_matrix_x4(r, slot(ops::lane_index()));
  });
}

TEST_CASE("Planted fault: another thread's copy without a barrier is reported, with one it is not") {
  fill_source();
  const auto kernel = [](bool with_barrier, bool with_warp_sync) {
    return [=] {
      ops::copy16_async(slot(ops::thread_index()), source, 16);
      ops::copy_commit();
      ops::copy_wait<0>();
      if (with_barrier) ops::barrier();
      if (with_warp_sync) ops::warp_sync();
      u32 r[4];
      ops::load_matrix_x4(r, slot((ops::thread_index() + 32) % 64));
    };
  };
  REQUIRE_OK(run_threads(kTwoWarps, kernel(true, false)));
  expect_report(kTwoWarps, "with no barrier in between", kernel(false, false));
  expect_report(kTwoWarps, "with no barrier in between", kernel(false, true));  // orders one warp only
}

TEST_CASE("A warp_sync orders the lanes of a warp") {
  fill_source();
  const auto kernel = [](bool with_warp_sync) {
    return [=] {
      ops::copy16_async(slot(ops::lane_index()), source, 16);
      ops::copy_commit();
      ops::copy_wait<0>();
      if (with_warp_sync) ops::warp_sync();
      u32 r[4];
      ops::load_matrix_x4(r, slot((ops::lane_index() + 1) % 32));
    };
  };
  REQUIRE_OK(run_threads(kWarp, kernel(true)));
  expect_report(kWarp, "with no barrier in between", kernel(false));
}

TEST_CASE("Planted fault: refilling a stage that another warp still reads is reported") {
  fill_source();
  const auto kernel = [](bool with_barrier) {
    return [=] {
      ops::store_shared_x4(slot(ops::thread_index()), ops::U32x4{});
      ops::barrier();
      u32 r[4];
      ops::load_matrix_x4(r, slot(ops::thread_index()));
      if (with_barrier) ops::barrier();
      ops::copy16_async(slot((ops::thread_index() + 32) % 64), source, 16);
    };
  };
  REQUIRE_OK(run_threads(kTwoWarps, kernel(true)));
  expect_report(kTwoWarps, "with no barrier in between", kernel(false));
}

TEST_CASE("Two copies to the same place at once are reported") {
  fill_source();
  expect_report(kWarp, "still on its way", [] {
    ops::copy16_async(slot(ops::lane_index() / 2), source, 16);
    ops::warp_sync();
  });
}

TEST_CASE("Addresses off their alignment or outside shared memory are reported") {
  fill_source();
  expect_report(kWarp, "destination is not 16-byte aligned", [] { ops::copy16_async(slot(0) + 8, source, 16); });
  expect_report(kWarp, "source is not 16-byte aligned", [] { ops::copy16_async(slot(0), source + 4, 16); });
  expect_report(kWarp, "valid bytes", [] { ops::copy16_async(slot(0), source, 17); });
  expect_report(kWarp, "offset 1024 of 1024", [] { ops::copy16_async(slot(64), source, 16); });
  expect_report({1, 1, 32, 1000}, "offset 992 of 1000", [] { ops::copy16_async(slot(62), source, 16); });
  expect_report(kWarp, "offset -16", [] { ops::load_shared_x4(slot(-1)); });
  expect_report(kWarp, "not 16-byte aligned", [] { ops::store_shared_x4(slot(0) + 4, ops::U32x4{}); });
  expect_report(kWarp, "aligned to the width of the load", [] { ops::load_stream_u32x4(source + 8); });
  expect_report(kWarp, "aligned to the width of the load", [] { ops::load_stream_u32(source + 2); });
}

TEST_CASE("Streaming loads read what is there") {
  fill_source();
  bool right = false;
  REQUIRE_OK(run_threads(kWarp, [&] {
    if (ops::lane_index() != 0) return;
    const ops::U32x4 a = ops::load_stream_u32x4(source + 16);
    const ops::U32x2 b = ops::load_stream_u32x2(source + 24);
    right = std::memcmp(&a, source + 16, 16) == 0 && std::memcmp(&b, source + 24, 8) == 0 && ops::load_stream_u16(source + 2) == 0x0302u &&
            ops::load_stream_u32(source + 4) == 0x07060504u;
  }));
  CHECK(right);
}
