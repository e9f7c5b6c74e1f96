// Programmatic dependent launch: a grid begins as early as the one before lets it, so that what it reads too early shows.
#include <catch2/catch.hpp>

#include "tests/lockstep/kernel.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

constexpr Launch kPlain{2, 1, 32, 0};
constexpr Launch kOverlapping{2, 1, 32, 0, true};

}  // namespace

TEST_CASE("Without overlap a grid begins when the one before has ended") {
  int written = 0;
  int seen = 0;
  const auto first = [&] {
    ops::grid_launch_next();
    ops::atomic_add(&written, 1);
  };
  const auto second = [&] { seen = written; };
  Stream stream;
  stream.add(kPlain, first, "first");
  stream.add(kPlain, second, "second");
  REQUIRE_OK(stream.run());
  CHECK(seen == 64);
}

TEST_CASE("An overlapping grid begins once every CTA before has let it, and finds results only after grid_wait") {
  int written = 0;
  int early = -1;
  int late = -1;
  const auto first = [&] {
    ops::grid_wait();  // nothing before the first grid
    ops::grid_launch_next();
    ops::atomic_add(&written, 1);
  };
  const auto second = [&] {
    if (ops::block_index_x() == 0 && ops::thread_index() == 0) early = written;
    ops::barrier();
    ops::grid_wait();
    late = written;
  };
  for (const bool random : {false, true}) {
    written = 0;
    Options options;
    options.random = random;
    Stream stream;
    stream.add(kPlain, first, "first");
    stream.add(kOverlapping, second, "second");
    REQUIRE_OK(stream.run(options));
    CHECK(early < 64);
    if (!random) CHECK(early == 32);  // CTA 0 has ended, CTA 1 has just let it begin
    CHECK(late == 64);
  }
}

TEST_CASE("A CTA that never calls grid_launch_next lets the next grid begin at its end") {
  int written = 0;
  int early = -1;
  const auto first = [&] { ops::atomic_add(&written, 1); };
  const auto second = [&] {
    if (early < 0) early = written;
    ops::grid_wait();
  };
  Stream stream;
  stream.add(kPlain, first, "first");
  stream.add(kOverlapping, second, "second");
  REQUIRE_OK(stream.run());
  CHECK(early == 64);
}

TEST_CASE("Planted fault: a grid that ends without grid_wait lets the one after pass its own too early") {
  int written = 0;
  int seen = -1;
  const auto run = [&](bool middle_waits) {
    written = 0;
    const auto first = [&] {
      ops::grid_launch_next();
      ops::atomic_add(&written, 1);
    };
    const auto middle = [&] {
      ops::grid_launch_next();
      if (middle_waits) ops::grid_wait();
    };
    const auto last = [&] {
      ops::grid_wait();  // of the middle one alone
      if (ops::block_index_x() == 0) seen = written;
    };
    Stream stream;
    stream.add(kPlain, first, "first");
    stream.add(kOverlapping, middle, "middle");
    stream.add(kOverlapping, last, "last");
    REQUIRE_OK(stream.run());
    return seen;
  };
  CHECK(run(true) == 64);
  CHECK(run(false) < 64);
}

TEST_CASE("A deadlock across grids names both") {
  const auto first = [&] {
    ops::grid_launch_next();
    if (ops::lane_index() == 0) ops::warp_sync();
    ops::barrier();
  };
  const auto second = [&] { ops::grid_wait(); };
  Stream stream;
  stream.add({1, 1, 32, 0}, first, "first");
  stream.add({1, 1, 32, 0, true}, second, "second");
  const Status status = stream.run();
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Catch::Contains("first, CTA (0, 0): thread 0 wait in warp_sync"));
  CHECK_THAT(status.error().message, Catch::Contains("second, CTA (0, 0): threads 0..31 wait for the grid before"));
}
