#include "runtime/reference/metrics.hpp"

#include <cmath>
#include <limits>

#include "runtime/weights/float_bits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"

namespace w4moe {
namespace {

TEST_CASE("16-bit floats: every finite value and NaN survives the way to float and back") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    i64 wrong = 0;
    for (u32 bits = 0; bits < 0x10000; ++bits) {
      const float value = float_of(dtype, static_cast<u16>(bits));
      if (std::isnan(value)) {
        wrong += !std::isnan(float_of(dtype, bits_of(dtype, value)));
      } else {
        wrong += bits_of(dtype, value) != bits;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("16-bit floats: rounding is to nearest even, subnormals and overflow included") {
  CHECK(bf16_of(1.00390625f) == 0x3f80);  // 1 + 2^-8: a tie, to even
  CHECK(bf16_of(1.01171875f) == 0x3f82);  // 1 + 3 * 2^-8: a tie, to even
  CHECK(bf16_of(3.4e38f) == 0x7f80);
  CHECK(f16_of(1.00048828125f) == 0x3c00);
  CHECK(f16_of(1.00146484375f) == 0x3c02);
  CHECK(f16_of(65519.0f) == 0x7bff);
  CHECK(f16_of(65520.0f) == 0x7c00);
  CHECK(f16_of(std::ldexp(1.0f, -25)) == 0);                 // half of the smallest subnormal: a tie, to zero
  CHECK(f16_of(std::ldexp(3.0f, -25)) == 2);
  CHECK(f16_of(std::ldexp(2047.0f, -25)) == 0x400);          // rounds up into the normal numbers
  CHECK(f16_of(-std::ldexp(1.0f, -24)) == 0x8001);
}

TEST_CASE("rows: relative RMSE, largest error, mismatched kinds") {
  const std::vector<double> reference{3, 4, 0, 0, std::nan(""), 1e6};
  const std::vector<u16> out{f16_of(3), f16_of(5), f16_of(0), f16_of(0), 0x7e00, 0x7c00};
  const ErrorReport report = compare_outputs(DType::f16, out, reference, 2);
  REQUIRE(report.rows.size() == 3);
  CHECK(report.rows[0].relative_rmse == Approx(0.2));
  CHECK(report.rows[0].max_abs == 1.0);
  CHECK(report.rows[1].relative_rmse == 0.0);
  CHECK(report.kind_mismatches == 0);
  CHECK(report.worst_row == 0);

  std::vector<u16> bad = out;
  bad[2] = f16_of(1);
  CHECK(std::isinf(compare_outputs(DType::f16, bad, reference, 2).rows[1].relative_rmse));
  bad = out;
  bad[0] = 0x7c00;
  bad[4] = 0;
  bad[5] = 0xfc00;
  CHECK(compare_outputs(DType::f16, bad, reference, 2).kind_mismatches == 3);
}

TEST_CASE("ulp distance counts steps, over zero too") {
  CHECK(ulp_distance(DType::bf16, 0x3f80, 0x3f82) == 2);
  CHECK(ulp_distance(DType::bf16, 0x0000, 0x8000) == 0);
  CHECK(ulp_distance(DType::f16, 0x0001, 0x8002) == 3);
  CHECK(ulp_distance(DType::f16, 0x7bff, 0x7c00) == 1);
  CHECK(ulp_distance(DType::f16, 0x7e00, 0xfe01) == 0);
  CHECK(ulp_distance(DType::f16, 0x7e00, 0x7c00) == 65536);
  CHECK(ulp_distance(DType::bf16, 0x7c01, 0x7c00) == 1);  // no NaN in bf16
  CHECK(max_ulp_distance(DType::bf16, std::vector<u16>{1, 5}, std::vector<u16>{1, 2}) == 3);
  CHECK(max_ulp_distance(DType::bf16, std::vector<u16>{1}, std::vector<u16>{}) == 65536);
}

TEST_CASE("contract: bounds by type and size, and the mirror's allowance for small layers") {
  Problem problem = test::small_problem(512, 256, 2);
  const auto report = [](double whole, double row) {
    ErrorReport r;
    r.relative_rmse = whole;
    r.rows = {RowError{row, 0, 0}};
    return r;
  };
  const ErrorReport mirror = report(2e-3, 2e-3);
  CHECK(check_contract(problem, report(3e-3, 3.9e-3), mirror).holds);
  CHECK_FALSE(check_contract(problem, report(3e-3, 4.1e-3), mirror).holds);
  CHECK_FALSE(check_contract(problem, report(4.1e-3, 3e-3), mirror).holds);
  CHECK_FALSE(check_contract(problem, report(std::nan(""), 3e-3), mirror).holds);
  problem.dtype = DType::f16;
  CHECK_FALSE(check_contract(problem, report(3e-4, 7e-4), mirror).holds);
  problem = test::small_problem(256, 256, 2);
  CHECK(check_contract(problem, report(2e-3, 2.9e-3), mirror).holds);
  CHECK_FALSE(check_contract(problem, report(2e-3, 3.1e-3), mirror).holds);
  CHECK_FALSE(check_contract(problem, report(2e-3, 1e-3), ErrorReport{}).holds);
  ErrorReport mismatched = report(0, 0);
  mismatched.kind_mismatches = 1;
  CHECK_FALSE(check_contract(problem, mismatched, mirror).holds);
}

}  // namespace
}  // namespace w4moe
