// M5 on the CPU that plays a GPU: the kernel sources themselves, each family and class of formats. What only hardware can show, that its
// matrix units sum alike at every width, is tests/gpu/batch_test.cpp's.
#include "tests/support/batch_cases.hpp"
#include "tests/support/lockstep_machine.hpp"

// Fibers under ThreadSanitizer are the lock-step suite's business.
#if !defined(__SANITIZE_THREAD__)

using namespace w4moe;
using namespace w4moe::test;

namespace {

const std::vector<i64> kBatches{1, 2, 7, 33, 64, 130};

std::string check(const QuantFormat& format, DType dtype = DType::bf16, std::vector<std::string> pins = {}) {
  CpuMachine machine(W4MOE_BINARY_DIR "/kernels");
  pins.emplace_back(kBatchInvariantPin);
  return check_batch_invariance(machine, batch_problem(machine, format, dtype, kBatches.back()), pins, kBatches);
}

}  // namespace

TEST_CASE("M5: batch-invariant, MXFP4 in the wgmma family") {
  const std::string kernels = check(kMxfp4);
  for (const char* name : {"fc1.w24", "fc2.w24", "fc1.w48", "fc2.w48"}) CHECK(kernels.find(name) != std::string::npos);
}
TEST_CASE("M5: batch-invariant, NVFP4 in the wgmma family") { check(kNvfp4); }
TEST_CASE("M5: batch-invariant, MXFP4 in the portable family") {
  const std::string kernels = check(kMxfp4, DType::bf16, {"portable"});
  for (const char* name : {"fc1.n8 ", "fc1.n16 ", "fc1.n32 "}) CHECK(kernels.find(name) != std::string::npos);
}
TEST_CASE("M5: batch-invariant, fp16: rows lifted by a power of two of their own, MXFP4") { check(kMxfp4, DType::f16); }
TEST_CASE("M5: batch-invariant, INT4: scales on the sums") { check(int4_format(32)); }
TEST_CASE("M5: batch-invariant, INT4 with zero points, groups of 64, fp16") { check(int4_format(64, true, ScaleType::f16), DType::f16); }
TEST_CASE("M5: batch-invariant, MXFP4 with whole exponents") { check(kMxfp4Wide); }

TEST_CASE("M5: the test can fail: without the pin a token's bits depend on the batch") {
  CpuMachine machine(W4MOE_BINARY_DIR "/kernels");
  const Problem p = batch_problem(machine, kMxfp4, DType::bf16, 7);
  const SyntheticLayer source = make_layer(p);
  MachineLayer layer(machine, p, source.source);
  const SyntheticInputs pool = make_inputs(p, 7);
  const std::vector<u16> alone = layer.run(pick_tokens(p, pool, {0}).inputs);
  std::vector<u16> among = layer.run(pool.inputs);
  among.resize(alone.size());
  CHECK(alone != among);
}

#endif
