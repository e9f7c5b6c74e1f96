// Faults planted into the kernels' own text: each must turn a whole layer red, so that the green runs mean something.
#include <catch2/catch.hpp>

#include "tests/lockstep/faults.hpp"

#if !defined(__SANITIZE_THREAD__)  // which takes a report as the end: sanitizer_test.cpp has its share

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

bool is_right(const LayerCase& c) {
  const LayerResult result = run_layer(c);
  return result.error.empty() && result.worst_ulp <= 2;
}

void check_faults(const std::string& kind) {
  int count = 0;
  for (const Fault& fault : all_faults()) {
    if (fault.only_asan || std::string(fault.name).rfind(kind, 0) != 0) continue;
    INFO(fault.name);
    CHECK_FALSE(is_right(case_with(fault)));
    ++count;
  }
  CHECK(count > 0);
}

}  // namespace

TEST_CASE("The layers of the planted faults are right without a fault") {
  for (const FaultCase where : {FaultCase::portable, FaultCase::deep, FaultCase::many_groups, FaultCase::direct, FaultCase::half, FaultCase::overlap, FaultCase::wgmma}) {
    LayerCase c = case_for(where);
    INFO(static_cast<int>(where));
    CHECK(is_right(c));
    c.device.random = true;
    c.device.seed = 5;
    CHECK(is_right(c));
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // which ends the process at some of them
TEST_CASE("Planted faults are caught: missing barriers") { check_faults("missing barrier"); }
TEST_CASE("Planted faults are caught: reads before the wait") { check_faults("read before wait"); }
TEST_CASE("Planted faults are caught: wrong parity") { check_faults("wrong parity"); }
TEST_CASE("Planted faults are caught: expert strides that drift") { check_faults("expert stride drift"); }
TEST_CASE("Planted faults are caught: wrong swizzle") { check_faults("wrong swizzle"); }
TEST_CASE("Planted faults are caught: the six defects of narrow layers") { check_faults("seed"); }
TEST_CASE("Planted faults are caught: stale scratch") { check_faults("stale scratch"); }
TEST_CASE("Planted faults are caught: off by one") { check_faults("off by one"); }
#endif

TEST_CASE("Planted fault: the report of a missing barrier names kernel and line") {
  const LayerResult result = run_layer(case_with(all_faults()[0]));
  CHECK_THAT(result.error, Catch::Contains("with no barrier in between") && Catch::Contains("mainloop.h:"));
}

#endif
