// Every scale byte with every code, as the kernels read them out of the packed words.
#include <cmath>
#include <cstring>

#include "packing/pack_unit.h"
#include "runtime/weights/float_bits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"

namespace w4moe {
namespace {

using test::int4_format;
using test::packed;
using test::small_problem;

constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

/// A layer whose every row holds codes k % 16, and whose scales are set by hand.
struct HandMade {
  Problem problem;
  SyntheticLayer layer;

  HandMade(QuantFormat format, i64 hidden, i64 intermediate, i64 experts) : problem(small_problem(hidden, intermediate, experts, format, Activation::relu2)) {
    SyntheticOptions options;
    options.global_convention = GlobalConvention::none;
    layer = make_layer(problem, options);
    for (SourceMatrix* matrix : {&layer.source.up, &layer.source.down}) {
      u8* const codes = bytes(matrix->codes);
      const std::vector<i64>& shape = matrix->codes[0].shape;
      for (i64 i = 0; i < shape[0] * shape[1] * shape[2]; ++i) codes[i] = static_cast<u8>((2 * i) % 16 + ((2 * i + 1) % 16) * 16);
    }
    fill(layer.source.down.scales, format.is_nvfp4() ? 0x38 : 127);
    fill(layer.source.up.scales, format.is_nvfp4() ? 0x38 : 127);
  }
  static u8* bytes(const SourceOperand& operand) { return const_cast<u8*>(static_cast<const u8*>(operand[0].data)); }
  static void fill(const SourceOperand& operand, u32 byte) {
    const std::vector<i64>& shape = operand[0].shape;
    std::memset(bytes(operand), static_cast<int>(byte), static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
  }
  u8& up_scale(i64 expert, i64 row, i64 group) {
    const std::vector<i64>& shape = layer.source.up.scales[0].shape;
    return bytes(layer.source.up.scales)[(expert * shape[1] + row) * shape[2] + group];
  }
};

/// Packing into fresh memory, for its verdict only.
Status try_pack(const Problem& problem, const SourceWeights& source) {
  std::vector<std::byte> dest(static_cast<std::size_t>(*prepared_weight_bytes(problem)));
  return pack_on_cpu(problem, source, dest);
}

/// One lane's weights of rows g and g + 8 of a unit, as the bf16 kernel computes them: raw register times scale pair.
double bf16_weight(const QuantFormat& format, const u8* unit, i64 row, i64 k) {
  const UnitLayout layout{format};
  const i64 quad = row % kRowPairs;
  const u32 half = row >= kRowPairs ? 1 : 0;
  const i64 lane = quad * 4 + (k % 8) / 2;
  const i64 step = k / kStepK;
  u32 words[4];
  std::memcpy(words, unit + lane * kLaneCodeBytes, sizeof(words));
  u32 r[4];
  if (step % 2 == 0) {
    fp4_unpack_even(words[step & ~1], words[step | 1], r);
  } else {
    fp4_unpack_odd(words[step & ~1], words[step | 1], r);
  }
  const u32 reg = r[half + (k % kStepK >= 8 ? 2 : 0)];
  const u32 raw = (k % 2 == 0 ? reg : reg >> 16) & 0xffffu;
  u32 scale_words[2] = {};
  std::memcpy(scale_words, unit + layout.pair_scale_offset_bytes(quad), static_cast<std::size_t>(layout.scale_bytes_per_pair()));
  const u32 pair = format.is_nvfp4() ? nv_scale_pair_bf16(scale_words[step / 2], static_cast<u32>(step % 2))
                                     : mx_scale_pair_bf16(scale_words[0], static_cast<u32>(step / 2));
  const u32 scale = (half == 0 ? pair : pair >> 16) & 0xffffu;
  const double exact = static_cast<double>(float_of_bf16(static_cast<u16>(raw))) * static_cast<double>(float_of_bf16(static_cast<u16>(scale)));
  // The hardware multiplies in bf16: the product must be one.
  const auto product = static_cast<float>(exact);
  REQUIRE((std::isnan(exact) || (static_cast<double>(product) == exact && static_cast<double>(float_of_bf16(bf16_of(product))) == exact)));
  return exact;
}

double f16_weight(const u8* unit, i64 row, i64 k) {
  const UnitLayout layout{kNvfp4};
  const i64 quad = row % kRowPairs;
  const u32 half = row >= kRowPairs ? 1 : 0;
  const i64 lane = quad * 4 + (k % 8) / 2;
  const i64 step = k / kStepK;
  u32 words[4];
  std::memcpy(words, unit + lane * kLaneCodeBytes, sizeof(words));
  u32 r[4];
  if (step % 2 == 0) {
    fp4_unpack_even(words[step & ~1], words[step | 1], r);
  } else {
    fp4_unpack_odd(words[step & ~1], words[step | 1], r);
  }
  const u32 reg = r[half + (k % kStepK >= 8 ? 2 : 0)];
  const u32 raw = (k % 2 == 0 ? reg : reg >> 16) & 0xffffu;
  const u32 places = (raw & 0x8000u) | ((raw << 3) & 0x0e00u);  // value * 2^-14 in fp16
  u32 scale_words[2];
  std::memcpy(scale_words, unit + layout.pair_scale_offset_bytes(quad), sizeof(scale_words));
  const u32 pair = nv_scale_pair_f16(scale_words[step / 2], static_cast<u32>(step % 2));
  const double exact = static_cast<double>(float_of_f16(static_cast<u16>(places))) *
                       static_cast<double>(float_of_f16(static_cast<u16>(half == 0 ? pair : pair >> 16)));
  const auto product = static_cast<float>(exact);
  REQUIRE((std::isnan(exact) || static_cast<double>(float_of_f16(f16_of(product))) == exact));
  return exact;
}

const u8* fc1_unit(const Problem& problem, const std::vector<std::byte>& prepared, i64 expert, i64 row, i64 k) {
  const WeightLayout layout = weight_layout(problem);
  return reinterpret_cast<const u8*>(prepared.data()) + layout.fc1_offset_bytes() +
         layout.fc1().unit_offset_bytes(expert, row / kStripRows, k / kUnitK);
}

ExpertGlobals globals_of(const Problem& problem, const std::vector<std::byte>& prepared, i64 expert) {
  ExpertGlobals globals;
  std::memcpy(&globals, prepared.data() + weight_layout(problem).globals_offset_bytes() + expert * static_cast<i64>(sizeof(globals)), sizeof(globals));
  return globals;
}

TEST_CASE("N19: MXFP4, all 256 scale bytes with all 16 codes, narrow layout") {
  // Expert e holds a window of exponents; the NaN byte is in every one of them.
  HandMade made(kMxfp4, 128, 64, 4);
  constexpr u32 kFirst[] = {2, 0, 128, 64};
  const auto byte_at = [&](i64 expert, i64 row, i64 group) -> u32 {
    const i64 i = row * 4 + group;  // 64 rows x 4 groups
    return i >= 127 ? 255 : kFirst[expert] + static_cast<u32>(i);
  };
  for (i64 e = 0; e < 4; ++e) {
    for (i64 row = 0; row < 64; ++row) {
      for (i64 group = 0; group < 4; ++group) made.up_scale(e, row, group) = static_cast<u8>(byte_at(e, row, group));
    }
  }
  CHECK_FALSE(try_pack(made.problem, made.layer.source));
  PackOptions options;
  options.allow_nan_scales = true;
  const std::vector<std::byte> prepared = packed(made.problem, made.layer.source, options);
  for (i64 e = 0; e < 4; ++e) {
    const double global = static_cast<double>(globals_of(made.problem, prepared, e).up);
    const u32 last = kFirst[e] + 126;
    const u32 base = last > 128 ? last - 126 : kFirst[e] < 2 ? kFirst[e] : 2;
    CHECK(global == std::pow(2.0, static_cast<double>(base) - 2));
    i64 wrong = 0;
    for (i64 row = 0; row < 64; ++row) {
      for (i64 k = 0; k < 128; ++k) {
        const double weight = bf16_weight(kMxfp4, fc1_unit(made.problem, prepared, e, row, k), row % kStripRows, k % kUnitK) * global;
        const u32 byte = byte_at(e, row, k / 32);
        const double expected = kE2m1[k % 16] * std::pow(2.0, static_cast<double>(byte) - 127);
        wrong += byte == 255 ? !std::isnan(weight) : weight != expected || std::signbit(weight) != std::signbit(expected);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("N19: MXFP4, all 256 scale bytes in one projection, wide layout") {
  HandMade made(kMxfp4Wide, 128, 64, 1);
  for (i64 i = 0; i < 256; ++i) made.up_scale(0, i / 4, i % 4) = static_cast<u8>(i);
  PackOptions options;
  options.allow_nan_scales = true;
  const std::vector<std::byte> prepared = packed(made.problem, made.layer.source, options);
  CHECK(globals_of(made.problem, prepared, 0).up == 1.0f);
  const Result<UnpackedMatrix> read = unpack_on_cpu(made.problem, prepared, Projection::up, 0);
  REQUIRE(read);
  for (i64 i = 0; i < 256; ++i) {
    CHECK(read->scales[static_cast<std::size_t>(i)] == i);
    const float factor = std::bit_cast<float>(e8m0_f32_bits(static_cast<u32>(i)));
    CHECK(static_cast<double>(factor) == (i == 255 ? HUGE_VAL : std::ldexp(1.0, static_cast<int>(i) - 127)));
    for (i64 k = i % 4 * 32; k < i % 4 * 32 + 32; ++k) {
      CHECK(read->codes[static_cast<std::size_t>(i / 4 * 128 + k)] == (i == 255 ? 0 : k % 16));  // 0 * infinity makes the NaN
    }
  }
}

TEST_CASE("N19: NVFP4, all 256 scale bytes with all 16 codes, bf16 and fp16") {
  HandMade made(kNvfp4, 128, 32, 1);  // 32 rows x 8 groups
  for (i64 i = 0; i < 256; ++i) made.up_scale(0, i / 8, i % 8) = static_cast<u8>(i);
  PackOptions options;
  options.allow_nan_scales = true;
  const std::vector<std::byte> prepared = packed(made.problem, made.layer.source, options);
  const double global = static_cast<double>(globals_of(made.problem, prepared, 0).up);
  CHECK(global == 128);
  i64 wrong = 0;
  for (i64 i = 0; i < 256; ++i) {
    const i64 magnitude = i % 128;
    const double unsigned_scale = magnitude < 8 ? static_cast<double>(magnitude) / 512
                                                : std::ldexp(static_cast<double>(8 + magnitude % 8), static_cast<int>(magnitude / 8) - 10);
    const double scale = i >= 128 ? -unsigned_scale : unsigned_scale;
    for (i64 k = i % 8 * 16; k < i % 8 * 16 + 16; ++k) {
      const u8* const unit = fc1_unit(made.problem, prepared, 0, i / 8, k);
      for (const double weight : {bf16_weight(kNvfp4, unit, i / 8 % kStripRows, k % kUnitK) * global,
                                  f16_weight(unit, i / 8 % kStripRows, k % kUnitK) * global}) {
        wrong += magnitude == 127 ? !std::isnan(weight) : weight != kE2m1[k % 16] * scale;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("MXFP4 windows: the least shift that holds every exponent, and blocks of zeros do not count") {
  const auto window = [](u32 min, u32 max) { return mx_window(ScanResult{min, max}); };
  CHECK((window(2, 128).base == 2 && window(2, 128).fits));
  CHECK((window(117, 121).base == 2 && window(117, 121).fits));
  CHECK((window(0, 126).base == 0 && window(0, 126).fits));
  CHECK((window(1, 127).base == 1 && window(1, 127).fits));
  CHECK_FALSE(window(0, 127).fits);
  CHECK_FALSE(window(1, 128).fits);
  CHECK((window(3, 129).base == 3 && window(3, 129).fits));
  CHECK_FALSE(window(2, 129).fits);
  CHECK((window(128, 254).base == 128 && window(128, 254).fits));
  CHECK((window(200, 200).base == 74 && window(200, 200).fits));
  CHECK((mx_window(ScanResult{}).base == 2 && mx_window(ScanResult{}).fits));

  HandMade made(kMxfp4, 64, 64, 2);
  made.up_scale(1, 5, 1) = 254;
  made.up_scale(1, 6, 0) = 100;
  const Result<ScanReport> narrow = scan_on_cpu(made.problem, made.layer.source);
  REQUIRE(narrow);
  CHECK(narrow->recommended == kMxfp4Wide);
  CHECK(narrow->results[kProjections + 1].min_byte == 100);
  CHECK(narrow->results[kProjections + 1].max_byte == 254);
  std::vector<std::byte> dest(static_cast<std::size_t>(*prepared_weight_bytes(made.problem)));
  const Status refused = pack_on_cpu(made.problem, made.layer.source, dest);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::unsupported);
  for (const char* part : {"expert 1", "up", "100..254", "mxfp4:wide"}) CHECK(refused.error().message.find(part) != std::string::npos);
  CHECK_FALSE(check_prepared(made.problem, dest));  // what a failure leaves behind is not prepared weights

  // The same spread, but the far block is all +-0.
  std::memset(HandMade::bytes(made.layer.source.up.codes) + ((64 + 5) * 32 + 16), 0x08, 16);
  CHECK(scan_on_cpu(made.problem, made.layer.source)->recommended == kMxfp4);
  const std::vector<std::byte> prepared = packed(made.problem, made.layer.source);
  CHECK(globals_of(made.problem, prepared, 1).up == 1.0f);
  CHECK(bf16_weight(kMxfp4, fc1_unit(made.problem, prepared, 1, 5, 33), 5, 33) == 0.0);
}

TEST_CASE("NaN scales are refused by name, or reach exactly their block") {
  HandMade made(kNvfp4, 64, 32, 2);
  made.up_scale(1, 7, 2) = 0xff;
  std::vector<std::byte> dest(static_cast<std::size_t>(*prepared_weight_bytes(made.problem)));
  const Status refused = pack_on_cpu(made.problem, made.layer.source, dest);
  REQUIRE_FALSE(refused);
  for (const char* part : {"expert 1", "up", "row 7", "group 2", "allow_nan_scales"}) {
    CHECK(refused.error().message.find(part) != std::string::npos);
  }
  PackOptions options;
  options.allow_nan_scales = true;
  const std::vector<std::byte> prepared = packed(made.problem, made.layer.source, options);
  i64 nans = 0;
  for (i64 row = 0; row < 32; ++row) {
    for (i64 k = 0; k < 64; ++k) {
      const bool nan = std::isnan(bf16_weight(kNvfp4, fc1_unit(made.problem, prepared, 1, row, k), row % 16, k));
      nans += nan;
      CHECK(nan == (row == 7 && k / 16 == 2));
    }
  }
  CHECK(nans == 16);

  const Problem int4 = small_problem(64, 32, 1, int4_format(32));
  SyntheticLayer layer = make_layer(int4);
  const u16 infinity = 0x7f80;
  std::memcpy(HandMade::bytes(layer.source.down.scales), &infinity, 2);
  CHECK_FALSE(try_pack(int4, layer.source));
}

TEST_CASE("N24: gate, up and down have their own globals per expert, multiplied or divided") {
  Problem problem = small_problem(64, 32, 3, kNvfp4);
  for (const GlobalConvention convention : {GlobalConvention::multiply, GlobalConvention::reciprocal}) {
    SyntheticLayer layer = make_layer(problem);
    layer.source.global_convention = convention;
    layer.source.gate_global = {1.0f, 1.0f, 1.0f};
    layer.source.up_global = {0.125f, 1.0f, 8.0f};
    layer.source.down_global = {2.0f, 4.0f, 0.5f};
    const std::vector<std::byte> prepared = packed(problem, layer.source);
    for (i64 e = 0; e < 3; ++e) {
      const auto i = static_cast<std::size_t>(e);
      const ExpertGlobals globals = globals_of(problem, prepared, e);
      const auto factor = [&](float stored) { return 128.0f * (convention == GlobalConvention::reciprocal ? 1.0f / stored : stored); };
      CHECK(globals.gate == factor(layer.source.gate_global[i]));
      CHECK(globals.up == factor(layer.source.up_global[i]));
      CHECK(globals.down == factor(layer.source.down_global[i]));
    }
  }
}

TEST_CASE("N26: zero points 0..15 in every declared order, signed storage and an added constant") {
  const Problem problem = small_problem(64, 64, 1, int4_format(32, true));
  const SyntheticNumbers numbers(problem, {});
  const SyntheticLayer layer = make_layer(problem);
  u32 seen = 0;
  for (i64 row = 0; row < 64; ++row) seen |= 1u << numbers.zero(0, Projection::down, row, 0);
  REQUIRE(seen == 0xffff);
  const std::vector<std::byte> expected = packed(problem, layer.source);

  // zero - 8 as a signed byte, and zero - 1 as GPTQ's first format keeps it
  for (const u8 added : {u8{8}, u8{1}}) {
    SyntheticLayer changed = make_layer(problem);
    for (SourceMatrix* matrix : {&changed.source.gate_up, &changed.source.down}) {
      u8* const zeros = HandMade::bytes(matrix->zeros);
      const std::vector<i64>& shape = matrix->zeros[0].shape;
      for (i64 i = 0; i < shape[1] * shape[2]; ++i) zeros[i] = static_cast<u8>(added == 8 ? zeros[i] - 8 : (zeros[i] - 1) & 15);
    }
    changed.source.zero_add = added;
    CHECK(packed(problem, changed.source) == expected);
  }
}

/// Counts padded elements of a matrix of expert 1 that do not decode to zero; all of them are looked at.
i64 nonzero_padding(const MatrixLayout& matrix, i64 rows, const u8* units, i64& padded) {
  const QuantFormat& format = matrix.format;
  i64 wrong = 0;
  for (i64 row = 0; row < matrix.padded_rows(); ++row) {
    for (i64 k = 0; k < matrix.padded_k(); ++k) {
      if (row < rows && k < matrix.k) continue;
      ++padded;
      const u8* const unit = units + matrix.unit_offset_bytes(1, row / 16, k / 64);
      if (!format.is_int4()) {
        wrong += bf16_weight(format, unit, row % 16, k % 64) != 0.0;
        continue;
      }
      const i64 half = row % 16 >= 8 ? 1 : 0;
      u32 words[4];
      std::memcpy(words, unit + (row % 8 * 4 + k % 8 / 2) * 16, sizeof(words));
      const u32 reg = int4_unpack(words[k % 64 / 16], static_cast<u32>(half + (k % 16 >= 8 ? 2 : 0)));
      const u32 code = (k % 2 == 0 ? reg : reg >> 16) & 15u;
      const i64 group = matrix.unit().groups() == 1 ? 0 : k % 64 / format.group_size;
      const u32 zero = format.has_zero_point ? unit[matrix.unit().pair_zero_offset_bytes(row % 8) + 2 * group + half] : 8;
      wrong += code != zero;
    }
  }
  return wrong;
}

TEST_CASE("padding decodes to zero: rows, columns and biases past the end") {
  for (const QuantFormat& format : {kMxfp4, kNvfp4, int4_format(32, true), int4_format(kWholeRow, true), int4_format(kWholeRow)}) {
    // Part-filled units and, for ungated features and whole-row hidden sizes, part-filled strips.
    const bool row = format.group_size == kWholeRow;
    Problem problem = small_problem(row ? 40 : 96, format.is_nvfp4() ? 48 : format.is_int4() && !row ? 32 : 40, 2, format, Activation::relu2);
    problem.has_bias = true;
    const std::vector<std::byte> prepared = packed(problem, make_layer(problem).source);
    const WeightLayout layout = weight_layout(problem);
    const u8* const base = reinterpret_cast<const u8*>(prepared.data());
    i64 padded = 0;
    INFO(to_string(format));
    CHECK(nonzero_padding(layout.fc1(), problem.shape.intermediate, base + layout.fc1_offset_bytes(), padded) == 0);
    CHECK(nonzero_padding(layout.fc2(), problem.shape.hidden, base + layout.fc2_offset_bytes(), padded) == 0);
    CHECK(padded > 0);
    for (i64 at = problem.shape.intermediate; at < layout.fc1_bias_stride_elems(); ++at) {
      CHECK(reinterpret_cast<const float*>(base + layout.fc1_bias_offset_bytes())[at] == 0.0f);
    }
    for (i64 at = problem.shape.hidden; at < layout.fc2_bias_stride_elems(); ++at) {
      CHECK(reinterpret_cast<const float*>(base + layout.fc2_bias_offset_bytes())[at] == 0.0f);
    }
  }
}

}  // namespace
}  // namespace w4moe
