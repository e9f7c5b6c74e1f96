// mbarriers, bulk copies and named barriers.
#include <catch2/catch.hpp>

#include <cstring>

#include "tests/lockstep/kernel.hpp"

#if !defined(__SANITIZE_THREAD__)

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

constexpr i64 kBytes = 1024;

u64* barrier_word(i32 i) { return reinterpret_cast<u64*>(ops::shared_memory() + kBytes) + i; }

void init_barrier(i32 i, i32 arrivals) {
  if (ops::thread_index() == 0) {
    ops::async_barrier_init(barrier_word(i), arrivals);
    ops::async_barrier_init_fence();
  }
}

struct Source {
  alignas(16) u8 bytes[kBytes];
  Source() {
    for (i64 i = 0; i < kBytes; ++i) bytes[i] = static_cast<u8>(i * 7 + i / 256);
  }
};

u32 word_of(const u8* p) {
  u32 v;
  std::memcpy(&v, p, 4);
  return v;
}

}  // namespace

TEST_CASE("A bulk copy is there once its mbarrier is waited for, phase after phase") {
  static const Source source;
  static u32 seen[2][32];
  for (const bool random : {false, true}) {
    Options options;
    options.random = random;
    options.seed = 11;
    LockstepDevice device(options);
    REQUIRE_OK(run_threads(device, {1, 1, 64, kBytes + 16}, [] {
      init_barrier(0, 1);      // full
      init_barrier(1, 32);     // empty: the lanes of warp 0
      ops::barrier();
      for (u32 phase = 0; phase < 2; ++phase) {
        if (ops::warp_index() == 1) {
          if (ops::lane_index() != 0) continue;
          ops::async_barrier_wait(barrier_word(1), phase ^ 1);  // the first phase of an empty ring needs no wait
          ops::async_barrier_expect(barrier_word(0), 512);
          ops::copy_bulk(ops::shared_memory(), source.bytes + phase * 512, 512, barrier_word(0));
        } else {
          ops::async_barrier_wait(barrier_word(0), phase);
          seen[phase][ops::lane_index()] = ops::load_shared_x4(ops::shared_memory() + ops::lane_index() * 16).v[1];
          ops::async_barrier_arrive(barrier_word(1));
        }
      }
    }));
    for (i64 lane = 0; lane < 32; ++lane) {
      for (i64 phase = 0; phase < 2; ++phase) REQUIRE(seen[phase][lane] == word_of(source.bytes + phase * 512 + lane * 16 + 4));
    }
  }
}

TEST_CASE("Planted fault: a bulk copy that nobody has waited for is not read") {
  static const Source source;
  expect_report({1, 1, 32, kBytes + 16}, "copies and has not waited for", [] {
    init_barrier(0, 1);
    ops::barrier();
    if (ops::thread_index() == 0) {
      ops::async_barrier_expect(barrier_word(0), 512);
      ops::copy_bulk(ops::shared_memory(), source.bytes, 512, barrier_word(0));
    }
    ops::warp_sync();
    ops::load_shared_x4(ops::shared_memory());
  });
}

TEST_CASE("Planted fault: the wrong parity passes a wait at once, and the read is reported") {
  static const Source source;
  expect_report({1, 1, 64, kBytes + 16}, "", [] {
    init_barrier(0, 1);
    ops::barrier();
    if (ops::thread_index() == 0) {
      ops::async_barrier_expect(barrier_word(0), 512);
      ops::copy_bulk(ops::shared_memory(), source.bytes, 512, barrier_word(0));
    }
    ops::async_barrier_wait(barrier_word(0), 1);
    ops::load_shared_x4(ops::shared_memory());
  });
}

TEST_CASE("Planted fault: a stage is refilled while another warp has not said that it is done with it") {
  static const Source source;
  expect_report({1, 1, 64, kBytes + 16}, "reads, with no barrier in between", [] {
    init_barrier(0, 1);
    ops::barrier();
    for (u32 phase = 0; phase < 2; ++phase) {
      if (ops::thread_index() == 32) {
        ops::async_barrier_wait(barrier_word(0), phase ^ 1);
        ops::async_barrier_expect(barrier_word(0), 512);
        ops::copy_bulk(ops::shared_memory(), source.bytes, 512, barrier_word(0));
      }
      if (ops::warp_index() == 0) {
        ops::async_barrier_wait(barrier_word(0), phase);
        ops::load_shared_x4(ops::shared_memory());
      }
    }
  });
}

TEST_CASE("Copies of 16 bytes arrive at an mbarrier as they land") {
  static const Source source;
  static u32 seen[32];
  REQUIRE_OK(run_threads({1, 1, 64, kBytes + 16}, [] {
    init_barrier(0, 32);
    ops::barrier();
    const i32 lane = ops::lane_index();
    if (ops::warp_index() == 1) {
      ops::copy16_async(ops::shared_memory() + lane * 16, source.bytes + lane * 16, 16);
      ops::copy_arrive(barrier_word(0));
    } else {
      ops::async_barrier_wait(barrier_word(0), 0);
      seen[lane] = ops::load_shared_x4(ops::shared_memory() + (31 - lane) * 16).v[0];
    }
  }));
  for (i64 lane = 0; lane < 32; ++lane) CHECK(seen[lane] == word_of(source.bytes + (31 - lane) * 16));
}

TEST_CASE("An mbarrier must be initialised, fenced and aligned before use") {
  expect_report({1, 1, 32, kBytes + 16}, "no mbarrier was initialised", [] { ops::async_barrier_arrive(barrier_word(0)); });
  expect_report({1, 1, 32, kBytes + 16}, "before async_barrier_init_fence", [] {
    if (ops::thread_index() == 0) ops::async_barrier_init(barrier_word(0), 1);
    ops::warp_sync();
    ops::async_barrier_arrive(barrier_word(0));
  });
  expect_report({1, 1, 32, kBytes + 16}, "not 8-byte aligned", [] { ops::async_barrier_init(reinterpret_cast<u64*>(ops::shared_memory() + 4), 1); });
}

TEST_CASE("Planted fault: an announcement of too many bytes is a deadlock that says what is missing") {
  static const Source source;
  expect_report({1, 1, 32, kBytes + 16}, "0 arrivals and 16 bytes are missing", [] {
    init_barrier(0, 1);
    ops::warp_sync();
    if (ops::thread_index() == 0) {
      ops::async_barrier_expect(barrier_word(0), 528);
      ops::copy_bulk(ops::shared_memory(), source.bytes, 512, barrier_word(0));
    }
    ops::async_barrier_wait(barrier_word(0), 0);
  });
}

TEST_CASE("A CTA must not end while a bulk copy is on its way") {
  static const Source source;
  expect_report({1, 1, 32, kBytes + 16}, "the CTA ends while a bulk copy of thread 0", [] {
    init_barrier(0, 1);
    if (ops::thread_index() != 0) return;
    ops::async_barrier_expect(barrier_word(0), 512);
    ops::copy_bulk(ops::shared_memory(), source.bytes, 512, barrier_word(0));
  });
}

TEST_CASE("A named barrier holds its threads and no others") {
  static int order[96];
  static int next = 0;
  REQUIRE_OK(run_threads({1, 1, 96, 1024}, [] {
    const i32 thread = ops::thread_index();
    if (ops::warp_index() < 2) {
      ops::store_shared_x4(ops::shared_memory() + thread * 16, {{static_cast<u32>(thread), 0, 0, 0}});
      ops::barrier_of<3, 64>();
      order[thread] = static_cast<int>(ops::load_shared_x4(ops::shared_memory() + (63 - thread) * 16).v[0]);
    } else {
      ++next;
    }
  }));
  for (int t = 0; t < 64; ++t) CHECK(order[t] == 63 - t);
  CHECK(next == 32);
}

TEST_CASE("Planted fault: a named barrier that counts too many threads names who waits") {
  expect_report({1, 1, 96, 16}, "wait at named barrier 3 (64 of 96 threads are there)", [] {
    if (ops::warp_index() < 2) ops::barrier_of<3, 96>();
  });
}

#endif
