// Faults planted into the kernels' own text: each must turn a whole layer red, so that the green runs mean something.
#include <catch2/catch.hpp>

#include "tests/lockstep/planted.hpp"

#if !defined(__SANITIZE_THREAD__)  // which takes a report as the end: sanitizer_test.cpp has its share

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

enum class Outcome { right, wrong, report };

Outcome run(LayerCase c, std::string* report = nullptr, bool random = false) {
  c.device.random = random;
  c.device.seed = 5;
  const LayerResult result = run_layer(c);
  if (report != nullptr) *report = result.error;
  if (!result.error.empty()) return Outcome::report;
  return result.worst_ulp <= 2 ? Outcome::right : Outcome::wrong;
}

}  // namespace

TEST_CASE("The layer of the planted faults is right without a fault") {
  CHECK(run(case_of_many_stages()) == Outcome::right);
  CHECK(run(case_of_many_stages(), nullptr, true) == Outcome::right);
}

TEST_CASE("Planted fault: the barrier of the main loop is missing") {
  std::string report;
  const Headers headers = planted("device/mainloop.h", "ops::barrier();  // the stage has landed", "// ");
  CHECK(run(case_of_many_stages(headers), &report) == Outcome::report);
  CHECK_THAT(report, Catch::Contains("with no barrier in between"));
}

TEST_CASE("Planted fault: the main loop waits for one stage too few") {
  std::string report;
  const Headers headers = planted("device/mainloop.h", "copy_wait<kTile.stages - 2>", "copy_wait<kTile.stages - 1>");
  CHECK(run(case_of_many_stages(headers), &report) == Outcome::report);
  CHECK_THAT(report, Catch::Contains("copies and has not waited for"));
}

TEST_CASE("Planted fault: partial sums are read before all warps have stored theirs") {
  const Headers headers = planted("kernels/fc1.cuh", "store_partials<V>(acc, shared);\n    ops::barrier();", "store_partials<V>(acc, shared);");
  CHECK(run(case_of_many_stages(headers)) != Outcome::right);
}

TEST_CASE("Planted fault: experts are counted and summed without a barrier") {
  const Headers headers = planted("kernels/route.cuh", "    for (i32 e = thread; e < a.experts; e += kThreads) counts[e] = 0;\n    ops::barrier();",
                                  "    for (i32 e = thread; e < a.experts; e += kThreads) counts[e] = 0;");
  // In order, thread 0 has cleared the counts before anyone counts: this one needs the random schedule.
  CHECK(run(case_of_many_stages(headers), nullptr, true) != Outcome::right);
}

TEST_CASE("Planted fault: the stride between experts drifts") {
  const Headers headers = planted("kernels/fc2.cuh", "block.expert * kMatrix.expert_stride_bytes()", "block.expert * (kMatrix.expert_stride_bytes() - 16)");
  CHECK(run(case_of_many_stages(headers)) == Outcome::wrong);
}

#if !defined(__SANITIZE_ADDRESS__)  // which stops at the read: sanitizer_test.cpp
TEST_CASE("Planted fault: the tail of a row is read instead of filled with zeros") {
  const Headers headers = planted("device/token_stage.h", "kTail.valid_vector_bytes(first + c * kThreads * 8, 2) == 16", "true");
  const auto finite_rows = [](LayerCase c) {
    c.nan_token = 4;  // its row of h lies behind some other row's tail
    const LayerResult result = run_layer(c);
    REQUIRE(result.error == "");
    i64 rows = 0;
    for (i64 t = 0; t < c.tokens; ++t) rows += (result.out[static_cast<std::size_t>(t * c.problem.shape.hidden)] & 0x7fff) <= 0x7f80 ? 1 : 0;
    return rows;
  };
  CHECK(finite_rows(case_of_many_stages()) == 8);
  CHECK(finite_rows(case_of_many_stages(headers)) < 8);
}
#endif

TEST_CASE("Planted fault: what lay in scratch before is not cleared") {
  const Headers headers = planted("kernels/route.cuh", "if (a.h_amax != nullptr) a.h_amax[p] = 0;", "");
  LayerCase c = case_of_many_stages();
  c.problem.dtype = DType::f16;
  CHECK(run(c) == Outcome::right);
  c.headers = headers;
  CHECK(run(c) != Outcome::right);
}

TEST_CASE("Planted fault: a kernel reads results before it has waited for the grid that makes them") {
  LayerCase c = case_of_many_stages();
  c.device.resident_ctas = 1000;  // all of a grid is there at once, as on a GPU
  CHECK(run(c) == Outcome::right);
  c.headers = planted("kernels/combine.cuh", "    ops::grid_wait();\n", "");
  CHECK(run(c) != Outcome::right);
  c.headers = planted("kernels/fc2.cuh", "if constexpr (!kScaledRows) ops::grid_wait();", "");
  CHECK(run(c) != Outcome::right);
}

TEST_CASE("Planted fault: FC1 lets FC2 begin before routing is complete") {
  const Headers headers = planted("kernels/fc1.cuh", "    ops::grid_wait();\n    ops::grid_launch_next();\n", "    ops::grid_launch_next();\n    ops::grid_wait();\n");
  LayerCase c = case_of_many_stages();
  c.problem = test::small_problem(256, 32, 4);
  c.device.resident_ctas = 1000;
  CHECK(run(c) == Outcome::right);
  c.headers = headers;
  CHECK(run(c) != Outcome::right);
}

#endif
