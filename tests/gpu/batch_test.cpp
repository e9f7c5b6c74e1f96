// M5 on a GPU: a token has the same bits in every batch, for each format and family. That the matrix units sum alike at every width of
// their instructions is a property of the hardware: this is where it shows.
#include "tests/gpu/gpu_machine.hpp"
#include "tests/support/batch_cases.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

/// Through every block width: averages of 1 to 512 routes per expert.
const std::vector<i64> kBatches{1, 2, 7, 33, 64, 130, 260, 600, 800, 1000, 1240, 2050, 4096};

void check(Machine& machine, const QuantFormat& format, DType dtype, std::vector<std::string> pins = {}) {
  pins.emplace_back(kBatchInvariantPin);
  check_batch_invariance(machine, batch_problem(machine, format, dtype, kBatches.back()), pins, kBatches);
}

}  // namespace

TEST_CASE("M5: batch-invariant on a GPU, MXFP4 and NVFP4 in the wgmma family") {
  W4MOE_GPU_MACHINE(machine);
  check(machine, kMxfp4, DType::bf16);
  check(machine, kNvfp4, DType::bf16);
}
TEST_CASE("M5: batch-invariant on a GPU, the portable family") {
  W4MOE_GPU_MACHINE(machine);
  check(machine, kMxfp4, DType::bf16, {"portable"});
  check(machine, kNvfp4, DType::bf16, {"portable"});
}
TEST_CASE("M5: batch-invariant on a GPU, formats whose scales go on sums, and fp16") {
  W4MOE_GPU_MACHINE(machine);
  check(machine, kMxfp4, DType::f16);
  check(machine, int4_format(32), DType::bf16);
  check(machine, int4_format(64, true, ScaleType::f16), DType::f16);
}
