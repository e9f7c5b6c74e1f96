// A kernel's text goes through the host compiler, is loaded and runs: barrier, shuffle, cp.async, ldmatrix and mma in one kernel.
#include <catch2/catch.hpp>

#include <vector>

#include "runtime/lockstep/device.hpp"
#include "contract/prelude.h"
#include "tests/lockstep/support.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

namespace {

// d[16][8] = a[16][16] b[16][8] in bf16: both operands travel through shared memory, rows of 32 bytes. b is stored transposed.
constexpr const char* kGemm = R"(
#include "device/ops.h"
#include "shape.h"
namespace w4moe {
struct GemmArgs { const u16* a; const u16* b; float* d; };
W4MOE_FACT(w4moe_threads, 64)
W4MOE_KERNEL(64, 1) gemm(W4MOE_ARGS(GemmArgs) args) {
  u8* shared = ops::shared_memory();
  const i32 t = ops::thread_index();
  if (t < 32) {
    ops::copy16_async(shared + t * 16, args.a + t * 8, 16);
  } else if (t < 48) {
    ops::copy16_async(shared + t * 16, args.b + (t - 32) * 8, 16);
  }
  ops::copy_commit();
  ops::copy_wait<0>();
  ops::barrier();
  if (ops::warp_index() != 0) return;
  const i32 lane = ops::lane_index();
  u32 a[4], b[4];
  float d[4] = {kStart, kStart, kStart, kStart};
  ops::load_matrix_x4(a, shared + (lane % 16) * 32 + lane / 16 * 16);
  ops::load_matrix_x4(b, shared + 512 + (lane % 8) * 32 + lane / 8 % 2 * 16);
  ops::mma_16816<DType::bf16>(d, a, b[0], b[1]);
  for (i32 i = 0; i < 4; ++i) args.d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
}
)";

}  // namespace

TEST_CASE("A kernel's text is compiled for the host and computes a small matrix product") {
  LockstepDevice device(test_options());
  const KernelSource source{"gemm", kGemm, {{"shape.h", "namespace w4moe { constexpr float kStart = 2.0f; }"}}, "gemm"};
  const auto kernel = device.load(source);
  REQUIRE_OK(kernel);
  REQUIRE(*kernel->fact("w4moe_threads") == 64);
  CHECK_FALSE(kernel->fact("w4moe_no_such_fact"));

  struct GemmArgs {
    const u16* a;
    const u16* b;
    float* d;
  };
  alignas(16) u16 a[16 * 16];
  alignas(16) u16 b[8 * 16];
  std::vector<float> d(16 * 8, -1.0f);
  for (int i = 0; i < 16 * 16; ++i) a[i] = static_cast<u16>(bf16_bits(static_cast<float>(i % 7 - 3)));
  for (int i = 0; i < 8 * 16; ++i) b[i] = static_cast<u16>(bf16_bits(static_cast<float>(i % 5 - 2)));
  REQUIRE_OK(device.launch(*kernel, {1, 1, 64, 768}, GemmArgs{a, b, d.data()}));
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int sum = 2;
      for (int k = 0; k < 16; ++k) sum += ((row * 16 + k) % 7 - 3) * ((column * 16 + k) % 5 - 2);
      REQUIRE(d[static_cast<std::size_t>(row * 8 + column)] == static_cast<float>(sum));
    }
  }
  CHECK(device.last_launch().barriers == 1);
  CHECK(device.last_launch().warp_ops == 3);
}

TEST_CASE("A text that does not compile is an error with the compiler's log") {
  LockstepDevice device(test_options());
  const auto kernel = device.load({"broken", "int f() { return no_such_name; }", {}, "f"});
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::compile_failed);
  CHECK_THAT(kernel.error().message, Catch::Contains("no_such_name"));
}

TEST_CASE("A missing compiler is named") {
  Options options = test_options();
  options.compiler = "no-such-compiler";
  LockstepDevice device(options);
  const auto kernel = device.load({"any", "", {}, "f"});
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::toolchain_missing);
  CHECK_THAT(kernel.error().message, Catch::Contains("no-such-compiler"));
}
