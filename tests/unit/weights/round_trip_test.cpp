// Whatever goes into the packed layout comes out again, for every format, tail and checkpoint layout.
#include <cstring>

#include "tests/support/catch.hpp"
#include "tests/support/prepare_cases.hpp"

namespace w4moe {
namespace {

using test::int4_format;
using test::packed;
using test::shard_of;
using test::small_problem;

const QuantFormat kFormats[] = {
    kMxfp4,          kMxfp4Wide,
    kNvfp4,          int4_format(32),
    int4_format(64), int4_format(128, true),
    int4_format(32, true, ScaleType::f16), int4_format(kWholeRow, true), int4_format(kWholeRow)};

/// Compares every code, scale, zero point and bias of prepared weights with the numbers the layer was made from.
void check_against_numbers(const Problem& problem, const SyntheticOptions& options, const std::vector<std::byte>& prepared) {
  const SyntheticNumbers numbers(problem, options);
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    for (const Projection projection : {Projection::gate, Projection::up, Projection::down}) {
      if (projection == Projection::gate && !is_gated(problem.activation)) continue;
      const Result<UnpackedMatrix> read = unpack_on_cpu(problem, prepared, projection, expert);
      REQUIRE(read);
      i64 wrong = 0;
      for (i64 row = 0; row < read->rows; ++row) {
        for (i64 k = 0; k < read->k; ++k) {
          wrong += read->codes[static_cast<std::size_t>(row * read->k + k)] != numbers.code(expert, projection, row, k);
        }
        for (i64 group = 0; group < read->groups; ++group) {
          const auto at = static_cast<std::size_t>(row * read->groups + group);
          wrong += read->scales[at] != numbers.scale_bits(expert, projection, row, group);
          wrong += read->zeros[at] != numbers.zero(expert, projection, row, group);
        }
      }
      INFO(to_string(problem.format) << " I " << problem.shape.intermediate << " expert " << expert << " projection "
                                     << static_cast<int>(projection));
      CHECK(wrong == 0);
      const float expected = numbers.global(expert, projection);
      CHECK(read->global == (options.global_convention == GlobalConvention::reciprocal && problem.format.is_nvfp4()
                                 ? 1.0f / (1.0f / expected)
                                 : expected));
    }
  }
}

TEST_CASE("every format comes back from the packed layout") {
  for (const QuantFormat& format : kFormats) {
    const Problem problem = small_problem(256, 128, 3, format);
    const SyntheticLayer layer = make_layer(problem);
    check_against_numbers(problem, {}, packed(problem, layer.source));
  }
}

TEST_CASE("tails of I come back, whole groups and compact, gated and not") {
  const auto check = [](i64 intermediate, const QuantFormat& format) {
    for (const Activation activation : {Activation::silu, Activation::relu2}) {
      const Problem problem = small_problem(96, intermediate, 2, format, activation);
      const SyntheticLayer layer = make_layer(problem);
      check_against_numbers(problem, {}, packed(problem, layer.source));
    }
  };
  for (const i64 intermediate : {16, 32, 80, 144, 176, 224}) check(intermediate, kNvfp4);
  for (const i64 intermediate : {8, 16, 32, 80, 144, 176, 224, 312}) check(intermediate, kMxfp4);
  for (const i64 intermediate : {16, 80, 312}) check(intermediate, kMxfp4Wide);
  for (const i64 intermediate : {32, 96, 224}) check(intermediate, int4_format(32, true));
  for (const i64 intermediate : {8, 80, 144, 312}) check(intermediate, int4_format(kWholeRow, true));
}

TEST_CASE("N02: hidden sizes that no tile divides, last expert") {
  for (const i64 hidden : {1600, 2880}) {
    const Problem problem = small_problem(hidden, 16, 4, kNvfp4);
    const SyntheticLayer layer = make_layer(problem);
    check_against_numbers(problem, {}, packed(problem, layer.source));
  }
}

TEST_CASE("N01 N16: every checkpoint layout of the same numbers packs to the same bytes") {
  for (const QuantFormat& format : kFormats) {
    for (const i64 intermediate : {128, 384}) {
      Problem problem = small_problem(128, intermediate, 2, format);
      problem.has_bias = true;
      SyntheticOptions plain;
      plain.global_convention = GlobalConvention::none;
      const std::vector<std::byte> expected = packed(problem, make_layer(problem, plain).source);
      check_against_numbers(problem, plain, expected);
      const auto same = [&](const SyntheticOptions& options) { return packed(problem, make_layer(problem, options).source) == expected; };
      for (const GateUpOrder order : {GateUpOrder::separate, GateUpOrder::up_first, GateUpOrder::interleaved}) {
        SyntheticOptions options = plain;
        options.gate_up_order = order;
        CHECK(same(options));
        options.per_expert_tensors = true;
        CHECK(same(options));
      }
      SyntheticOptions options = plain;
      options.code_order = CodeOrder::high_nibble_first;
      CHECK(same(options));
      options = plain;
      options.code_words = true;
      CHECK(same(options));
      options = plain;
      options.scale_layout = ScaleLayout::transposed;
      CHECK(same(options));
      if (format.scale_bytes() == 1) {
        for (const GateUpOrder order : {GateUpOrder::gate_first, GateUpOrder::separate, GateUpOrder::interleaved}) {
          options.scale_layout = ScaleLayout::swizzled_128x4;
          options.gate_up_order = order;
          CHECK(same(options));
        }
      }
      options = plain;
      options.code_sign = CodeSign::twos_complement;
      CHECK(same(options));
      options = plain;
      options.code_order = CodeOrder::awq_words;
      CHECK(same(options));
      for (const ZeroOrder order :
           {ZeroOrder::nibbles_along_rows, ZeroOrder::awq_words, ZeroOrder::nibbles_along_groups, ZeroOrder::nibbles_along_groups_high_first}) {
        options = plain;
        options.zero_order = order;
        CHECK(same(options));
      }
    }
  }
}

TEST_CASE("W5: every byte is written: what the destination held before does not show") {
  for (const test::PrepareCase& c : test::prepare_cases()) {
    const Problem problem = c.problem();
    const SyntheticLayer layer = make_layer(problem, c.source);
    std::vector<std::byte> ones(static_cast<std::size_t>(*prepared_weight_bytes(problem)), std::byte{0xff});
    REQUIRE(pack_on_cpu(problem, layer.source, ones));
    INFO(c.what);
    CHECK(test::first_difference(packed(problem, layer.source), ones) == -1);
  }
}

TEST_CASE("threads and repetition do not change a byte, and experts are reported done in order") {
  const Problem problem = small_problem(128, 96, 3, kNvfp4);
  const SyntheticLayer layer = make_layer(problem);
  std::vector<i64> done;
  PackOptions options;
  options.threads = 3;
  options.on_expert_done = [&](i64 expert) { done.push_back(expert); };
  CHECK(packed(problem, layer.source, options) == packed(problem, layer.source));
  CHECK(done == std::vector<i64>{0, 1, 2});
}

TEST_CASE("S14: tensors of an expert may be overwritten once it is done") {
  const Problem problem = small_problem(64, 64, 3, kNvfp4);
  SyntheticOptions made;
  made.per_expert_tensors = true;
  made.gate_up_order = GateUpOrder::separate;
  const std::vector<std::byte> expected = packed(problem, make_layer(problem, made).source);
  SyntheticLayer layer = make_layer(problem, made);
  PackOptions options;
  options.on_expert_done = [&](i64 expert) {
    for (const SourceMatrix* matrix : {&layer.source.gate, &layer.source.up, &layer.source.down}) {
      for (const SourceOperand* operand : {&matrix->codes, &matrix->scales}) {
        const SourceTensor& tensor = (*operand)[static_cast<std::size_t>(expert)];
        std::memset(const_cast<void*>(tensor.data), 0xee, static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
      }
    }
  };
  CHECK(packed(problem, layer.source, options) == expected);
}

TEST_CASE("strided tensors: a tensor-parallel shard is packed from the whole layer's memory") {
  // Rank 1 of 2: features 32..63 of 64, as views into the unsharded tensors.
  const Problem whole = small_problem(64, 64, 2, kMxfp4);
  const SyntheticLayer layer = make_layer(whole);
  Problem shard = whole;
  shard.shape.intermediate = 32;
  const std::vector<std::byte> prepared = packed(shard, shard_of(whole, layer.source, 1, 2));

  const SyntheticNumbers numbers(whole, {});
  i64 wrong = 0;
  for (i64 expert = 0; expert < 2; ++expert) {
    const Result<UnpackedMatrix> up = unpack_on_cpu(shard, prepared, Projection::up, expert);
    const Result<UnpackedMatrix> down = unpack_on_cpu(shard, prepared, Projection::down, expert);
    REQUIRE(up);
    REQUIRE(down);
    for (i64 row = 0; row < 32; ++row) {
      for (i64 k = 0; k < 64; ++k) wrong += up->codes[static_cast<std::size_t>(row * 64 + k)] != numbers.code(expert, Projection::up, row + 32, k);
    }
    for (i64 row = 0; row < 64; ++row) {
      for (i64 k = 0; k < 32; ++k) wrong += down->codes[static_cast<std::size_t>(row * 32 + k)] != numbers.code(expert, Projection::down, row, k + 32);
      wrong += down->scales[static_cast<std::size_t>(row)] != numbers.scale_bits(expert, Projection::down, row, 1);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace w4moe
