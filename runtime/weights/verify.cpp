// Prepared weights against the tensors they were made from, by value.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "generator/problem/errors.hpp"
#include "runtime/reference/source_decoder.hpp"
#include "runtime/weights/operand.hpp"
#include "runtime/weights/parallel.hpp"
#include "w4moe/checkpoint.hpp"

namespace w4moe {
namespace {

constexpr double kE2m1[16] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

/// Value of a packed scale in the checkpoint's encoding.
double scale_value(ScaleType type, u32 bits) {
  const auto of_float = [](u32 b, int mantissa_bits, int exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto exponent = static_cast<int>((b >> mantissa_bits) & ((1u << exponent_bits) - 1u));
    const u32 mantissa = b & ((1u << mantissa_bits) - 1u);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits) : std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
    return (b >> (mantissa_bits + exponent_bits)) != 0 ? -magnitude : magnitude;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  switch (type) {
    case ScaleType::e8m0: return bits == kE8m0Nan ? kNan : std::ldexp(1.0, static_cast<int>(bits) - 127);
    case ScaleType::e4m3: return (bits & 0x7fu) == 0x7fu ? kNan : of_float(bits, 3, 4);
    case ScaleType::bf16: return (bits & 0x7f80u) == 0x7f80u ? kNan : of_float(bits, 7, 8);
    case ScaleType::f16: return (bits & 0x7c00u) == 0x7c00u ? kNan : of_float(bits, 10, 5);
  }
  return kNan;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// One projection of one expert.
Status verify_projection(const Problem& problem, const SourceWeights& source, std::span<const std::byte> prepared, Projection projection, i64 expert) {
  const Result<UnpackedMatrix> unpacked = unpack_on_cpu(problem, prepared, projection, expert);
  if (!unpacked) return unpacked.error();
  const UnpackedMatrix& m = *unpacked;
  const SourceDecoder decoder(problem, source);
  // Both sides' products of scale, global and code are exact in double: 11 + 24 + 5 bits at most.
  const auto global = static_cast<double>(global_factor(source, projection, expert));
  std::vector<float> values(static_cast<std::size_t>(m.k));
  std::vector<double> scales(static_cast<std::size_t>(m.groups));
  const i64 group_columns = problem.format.group_size == kWholeRow ? m.k : problem.format.group_size;
  const auto fault = [&](const std::string& what) {
    return Error{ErrorCode::corrupt, fmt::format("expert {}, {}: {}", expert, to_string(projection), what)};
  };
  for (i64 row = 0; row < m.rows; ++row) {
    decoder.row(expert, projection, row, values.data(), scales.data());
    const auto first = static_cast<std::size_t>(row * m.k);
    const auto first_group = static_cast<std::size_t>(row * m.groups);
    for (i64 group = 0; group < m.groups; ++group) {
      const auto at_group = first_group + static_cast<std::size_t>(group);
      const double expected_scale = scales[static_cast<std::size_t>(group)] * global;
      const double packed_scale = scale_value(problem.format.scale, m.scales[at_group]) * static_cast<double>(m.global);
      const double zero = problem.format.is_int4() ? static_cast<double>(m.zeros[at_group]) : 0.0;
      const i64 begin = group * group_columns;
      for (i64 k = begin; k < std::min(m.k, begin + group_columns); ++k) {
        const auto at = static_cast<std::size_t>(k);
        const u8 code = m.codes[first + at];
        const double expected = static_cast<double>(values[at]) * expected_scale;
        const double packed = (problem.format.is_int4() ? static_cast<double>(code) - zero : kE2m1[code]) * packed_scale;
        if (!same(expected, packed)) return fault(fmt::format("row {}, column {}: {} packed, {} in the checkpoint", row, k, packed, expected));
      }
    }
    if (problem.has_bias) {
      const double expected = decoder.bias(expert, projection, row);
      const auto packed = static_cast<double>(m.bias[static_cast<std::size_t>(row)]);
      if (!same(expected, packed)) return fault(fmt::format("bias of row {}: {} packed, {} in the checkpoint", row, packed, expected));
    }
  }
  return {};
}

}  // namespace

Status verify_prepared(const Problem& problem, const SourceWeights& source, std::span<const std::byte> prepared, int threads) {
  if (Status s = validate_source(problem, source); !s) return s;
  if (source.on_device) return invalid_argument("the tensors are in device memory; only host tensors are verified");
  if (Status s = check_prepared(problem, prepared); !s) return s;
  std::mutex mutex;
  i64 first_bad = problem.shape.experts;
  Status status;
  parallel_for(threads, problem.shape.experts, [&](i64 begin, i64 end) {
    for (i64 expert = begin; expert < end; ++expert) {
      for (const Projection projection : projections_of(problem)) {
        const Status s = verify_projection(problem, source, prepared, projection, expert);
        if (s) continue;
        const std::lock_guard lock(mutex);
        if (expert < first_bad) status = s, first_bad = expert;
        return;
      }
    }
  });
  return status;
}

}  // namespace w4moe
