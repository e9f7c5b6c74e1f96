// What only the sanitizers see: plain C++ accesses of the kernels. A faulty run ends the process, so each is a hidden test case
// that the visible one runs in a process of its own.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/lockstep/kernel.hpp"
#include "tests/lockstep/faults.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace {

struct Child {
  int status = 0;
  std::string output;
};

Child run_hidden(const std::string& tag) {
  char self[4096] = {};
  REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  FILE* pipe = popen(("'" + std::string(self) + "' '[" + tag + "]' 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Child child;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) child.output.append(buffer, n);
  child.status = pclose(pipe);
  return child;
}

void run_faulty(LayerCase c, const Headers& headers) {
  c.headers = headers;
  run_layer(c);
}

void expect_stopped(const std::string& tag, const std::string& what, const std::string& file) {
  const Child child = run_hidden(tag);
  INFO(child.output);
  CHECK(child.status != 0);
  CHECK(child.output.find(what) != std::string::npos);
  CHECK(child.output.find(file) != std::string::npos);
}

}  // namespace
#endif

#if defined(__SANITIZE_ADDRESS__)

// A faulty layer for the hidden case: which one is in the environment.
TEST_CASE("hidden: a planted fault", "[.][asan-fault]") {
  const char* which = std::getenv("W4MOE_PLANTED_FAULT");
  REQUIRE(which != nullptr);
  static_cast<void>(run_layer(case_with(all_faults()[static_cast<std::size_t>(std::atoi(which))])));
}
// In parts that CTest runs side by side; whatever is marked only_asan is in one of them.
constexpr int kParts = 4;

void expect_faults_stopped(int part) {
  int count = 0;
  for (std::size_t i = 0; i < all_faults().size(); ++i) {
    const Fault& fault = all_faults()[i];
    if (!fault.only_asan || count++ % kParts != part) continue;
    INFO(fault.name);
    setenv("W4MOE_PLANTED_FAULT", std::to_string(i).c_str(), 1);
    expect_stopped("asan-fault", "AddressSanitizer: ", "lock-step device: ");
  }
  unsetenv("W4MOE_PLANTED_FAULT");
  CHECK(count >= 2 * kParts);
}
TEST_CASE("Planted faults that read too far stop under AddressSanitizer, part 1") { expect_faults_stopped(0); }
TEST_CASE("Planted faults that read too far stop under AddressSanitizer, part 2") { expect_faults_stopped(1); }
TEST_CASE("Planted faults that read too far stop under AddressSanitizer, part 3") { expect_faults_stopped(2); }
TEST_CASE("Planted faults that read too far stop under AddressSanitizer, part 4") { expect_faults_stopped(3); }

TEST_CASE("hidden: stores columns past the last", "[.][asan-store]") {
  LayerCase c = case_of_many_stages();
  c.problem = test::small_problem(272, 160, 4, kNvfp4);  // 17 strips of 16 rows in tiles of two
  run_faulty(c, planted("kernels/fc2.cuh", "if (row >= block.rows || column >= V.hidden) return;", "if (row >= block.rows) return;"));
}
TEST_CASE("Planted fault: a store without its predicate stops under AddressSanitizer") {
  expect_stopped("asan-store", "heap-buffer-overflow", "epilogue.h");
}

TEST_CASE("hidden: writes past shared memory", "[.][asan-shared]") {
  static_cast<void>(run_threads({1, 1, 32, 100}, [] { ops::shared_memory()[69 + ops::lane_index()] = 0; }));
}
TEST_CASE("One byte past shared memory stops under AddressSanitizer") {
  expect_stopped("asan-shared", "use-after-poison", "sanitizer_test.cpp");
  expect_stopped("asan-shared", "use-after-poison", "lock-step device: test, CTA (0, 0) thread 31 (warp 0, lane 31)");
}

TEST_CASE("hidden: reads a copy's destination", "[.][asan-copy]") {
  alignas(16) static u8 source[16];
  [[maybe_unused]] static volatile u8 sink;
  static_cast<void>(run_threads({1, 1, 32, 512}, [] {
    u8* to = ops::shared_memory() + 16 * ops::lane_index();
    ops::copy16_async(to, source, 16);
    ops::copy_commit();
    sink = to[5];
  }));
}
TEST_CASE("A plain read of a copy under way stops under AddressSanitizer") {
  expect_stopped("asan-copy", "use-after-poison", "sanitizer_test.cpp");
}

#elif defined(__SANITIZE_THREAD__)

TEST_CASE("hidden: partial sums without a barrier", "[.][tsan-partials]") {
  run_faulty(case_of_many_stages(),
             planted("kernels/fc1.cuh", "store_partials<V>(acc, shared);\n    ops::barrier();", "store_partials<V>(acc, shared);"));
}
TEST_CASE("Planted fault: partial sums read without a barrier are a race under ThreadSanitizer") {
  expect_stopped("tsan-partials", "data race", "epilogue.h");
}

TEST_CASE("hidden: stages reused without a barrier", "[.][tsan-reuse]") {
  run_faulty(case_of_many_stages(), planted("device/mainloop.h", "ops::copy_wait<0>();\n  ops::barrier();", "ops::copy_wait<0>();"));
}
TEST_CASE("Planted fault: stages reused without a barrier are a race under ThreadSanitizer") {
  expect_stopped("tsan-reuse", "data race", "epilogue.h");
}

TEST_CASE("hidden: counts cleared without a barrier", "[.][tsan-route]") {
  run_faulty(case_of_many_stages(), planted("kernels/route.cuh", "counts[e] = 0;\n    ops::barrier();", "counts[e] = 0;"));
}
TEST_CASE("Planted fault: counting before the counts are cleared is a race under ThreadSanitizer") {
  expect_stopped("tsan-route", "data race", "route.cuh");
}

#endif
