// Order of threads, rendezvous, and the reports where threads never meet.
#include <catch2/catch.hpp>

#include <set>
#include <vector>

#include "tests/lockstep/kernel.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

constexpr Launch kWarp{1, 1, 32, 64};
constexpr Launch kTwoWarps{1, 1, 64, 64};

std::vector<int> order_of(const Options& options, const Launch& grid) {
  std::vector<int> order;
  LockstepDevice device(options);
  REQUIRE_OK(run_threads(device, grid, [&] {
    ops::barrier();
    order.push_back(static_cast<int>(ops::block_index_x()) * 1000 + ops::thread_index());
  }));
  return order;
}

}  // namespace

TEST_CASE("Every thread of every CTA runs once and knows its place") {
  std::set<std::vector<i64>> seen;
  std::set<bool> aligned;
  REQUIRE_OK(run_threads({3, 2, 64, 256}, [&] {
    CHECK(ops::lane_index() == ops::thread_index() % 32);
    CHECK(ops::warp_index() == ops::thread_index() / 32);
    CHECK(ops::grid_size_x() == 3);
    aligned.insert(reinterpret_cast<u64>(ops::shared_memory()) % 1024 == 0);
    seen.insert({ops::block_index_x(), ops::block_index_y(), ops::thread_index()});
  }));
  CHECK(seen.size() == 3 * 2 * 64);
  CHECK(aligned == std::set<bool>{true});
}

TEST_CASE("The ordered schedule is ascending, a seeded one is random and repeats") {
  std::vector<int> ascending;
  for (int i = 0; i < 128; ++i) ascending.push_back(i / 64 * 1000 + i % 64);
  const Launch grid{2, 1, 64, 0};
  CHECK(order_of({}, grid) == ascending);
  Options first;
  first.random = true;
  first.seed = 1;
  Options second = first;
  second.seed = 2;
  CHECK(order_of(first, grid) == order_of(first, grid));
  CHECK(order_of(first, grid) != ascending);
  CHECK(order_of(first, grid) != order_of(second, grid));
}

TEST_CASE("Resident CTAs run side by side and keep their own shared memory") {
  Options options;
  options.resident_ctas = 3;
  LockstepDevice device(options);
  int side_by_side = 0;
  int running[4] = {};
  bool own = true;
  REQUIRE_OK(run_threads(device, {4, 1, 32, 64}, [&] {
    const i64 block = ops::block_index_x();
    if (ops::thread_index() == 0) {
      running[block] = 1;
      *reinterpret_cast<i64*>(ops::shared_memory()) = block;
    }
    ops::barrier();
    side_by_side = std::max(side_by_side, running[0] + running[1] + running[2] + running[3]);
    ops::barrier();
    own = own && *reinterpret_cast<i64*>(ops::shared_memory()) == block;
    ops::barrier();
    if (ops::thread_index() == 0) running[block] = 0;
  }));
  CHECK(side_by_side == 3);
  CHECK(own);
}

TEST_CASE("A barrier separates what comes before from what comes after under every schedule") {
  for (u64 seed = 0; seed < 8; ++seed) {
    Options options;
    options.random = seed > 0;
    options.seed = seed;
    LockstepDevice device(options);
    int arrived = 0;
    bool whole = true;
    REQUIRE_OK(run_threads(device, {1, 1, 256, 0}, [&] {
      ops::atomic_add(&arrived, 1);
      ops::barrier();
      whole = whole && arrived == 256;
    }));
    CHECK(whole);
  }
}

TEST_CASE("Atomics do what they say") {
  i32 sum = 5;
  u32 highest = 3;
  u32 lowest = 300;
  u32 bits = 0;
  std::set<i32> before;
  REQUIRE_OK(run_threads(kWarp, [&] {
    const u32 lane = static_cast<u32>(ops::lane_index());
    before.insert(ops::atomic_add_shared(&sum, 2));
    ops::atomic_max(&highest, lane * 7 % 32);
    ops::atomic_min(&lowest, 200 + lane * 7 % 32);
    ops::atomic_or(&bits, 1u << lane);
  }));
  CHECK(sum == 5 + 64);
  CHECK(before.size() == 32);
  CHECK(*before.begin() == 5);
  CHECK(highest == 31);
  CHECK(lowest == 200);
  CHECK(bits == 0xffffffffu);
}

TEST_CASE("Threads that have exited are not waited for at a barrier") {
  int passed = 0;
  REQUIRE_OK(run_threads(kTwoWarps, [&] {
    if (ops::warp_index() == 1) return;
    ops::barrier();
    ++passed;
  }));
  CHECK(passed == 32);
}

TEST_CASE("Planted fault: a deadlock names who waits for what") {
  expect_report(kTwoWarps, "deadlock", [] {
    if (ops::thread_index() == 3) {
      ops::barrier();
    } else {
      ops::warp_sync();
    }
  });
  const Status status = run_threads(kTwoWarps, [] {
    if (ops::thread_index() != 3) ops::warp_sync();
    ops::barrier();
  });
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Catch::Contains("threads 0..2 wait in warp_sync schedule_test.cpp:"));
  CHECK_THAT(status.error().message, Catch::Contains("thread 3 wait at barrier schedule_test.cpp:"));
  CHECK_THAT(status.error().message, Catch::Contains("threads 32..63 wait at barrier"));
}

TEST_CASE("Planted fault: lanes that part at a collective are reported") {
  expect_report(kWarp, "while lane 0 of the warp waits in shuffle_xor", [] {
    if (ops::lane_index() < 16) {
      ops::shuffle_xor(1, 1);
    } else {
      ops::shuffle_up(1, 1);
    }
  });
  expect_report(kWarp, "waits in warp_sync", [] {  // the same instruction on another line
    if (ops::lane_index() < 16) {
      ops::warp_sync();
    } else {
      ops::warp_sync();
    }
  });
  expect_report(kTwoWarps, "waits at another one", [] {
    if (ops::warp_index() == 0) {
      ops::barrier();
    } else {
      ops::barrier();
    }
  });
}

TEST_CASE("Planted fault: a lane that exits before its warp's collective is reported") {
  expect_report(kWarp, "lanes of the warp have exited", [] {
    if (ops::lane_index() == 0) return;
    ops::shuffle(1, 0);
  });
  expect_report(kWarp, "exits while lane 0 of its warp waits in shuffle", [] {
    if (ops::lane_index() == 31) return;
    ops::shuffle(1, 0);
  });
}

#if !defined(__SANITIZE_ADDRESS__)  // which reports the write itself
TEST_CASE("A write past shared memory is found at the CTA's end") {
  expect_report({1, 1, 32, 100}, "past its 100 bytes of shared memory, 4 bytes behind the end", [] {
    if (ops::thread_index() == 0) ops::shared_memory()[104] = 0;
  });
}
#endif

TEST_CASE("After a report the device runs the next launch as if nothing had been") {
  LockstepDevice device;
  int count = 0;
  REQUIRE_FALSE(run_threads(device, kWarp, [] {
    if (ops::lane_index() < 5) ops::warp_sync();
  }));
  REQUIRE_OK(run_threads(device, kTwoWarps, [&] {
    ops::barrier();
    ++count;
  }));
  CHECK(count == 64);
}

TEST_CASE("Launches that no GPU would take are refused") {
  const auto nothing = [] {};
  CHECK_FALSE(run_threads({1, 1, 31, 0}, nothing));
  CHECK_FALSE(run_threads({1, 1, 2048, 0}, nothing));
  CHECK_FALSE(run_threads({0, 1, 32, 0}, nothing));
  CHECK_FALSE(run_threads({1, 1, 32, -1}, nothing));
}
