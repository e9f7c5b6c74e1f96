// The tail matrix: every width that leaves part-filled units, tiles and groups, through every way of working that a plan can pick,
// under three fillings of the scratch. With AddressSanitizer in CI, where one byte too far stops the test with kernel and line.
// Axes are not multiplied: tails times families on one format and activation, formats and activations on two shapes.
#include <catch2/catch.hpp>

#include <algorithm>
#include <climits>
#include <random>

#include "tests/lockstep/layer.hpp"

#if !defined(__SANITIZE_THREAD__)

using namespace w4moe;
using namespace w4moe::lockstep;

using test::int4_format;
using test::small_problem;

// A build that is sanitized as a whole (tools/check --sanitize) runs all of the matrix. Every other build runs what CI has time for, and
// the rest when it is asked for: w4moe_lockstep_asan_tests "[.whole]".
#if defined(W4MOE_WHOLE_MATRIX)
#define WHOLE "[matrix]"
#else
#define WHOLE "[.whole]"
#endif

namespace {

LayerCase case_of(i64 hidden, i64 intermediate, QuantFormat format, Activation activation, std::vector<std::string> pins = {}) {
  LayerCase c;
  c.problem = small_problem(hidden, intermediate, 4, format, activation);
  c.pins = std::move(pins);
  c.fillings = {0xff, 0x00, 0x5b};
  return c;
}

/// relu2 on small integers is exact; other activations are held to two units in the last place.
void check_tokens(LayerCase c, const std::vector<i64>& token_counts) {
  const bool exact_sums = c.problem.activation == Activation::relu2;
  if (exact_sums) c = exact(c);
  c.max_tokens = *std::max_element(token_counts.begin(), token_counts.end());
  PreparedLayer layer(c);
  for (const i64 tokens : token_counts) {
    INFO("H " << c.problem.shape.hidden << ", I " << c.problem.shape.intermediate << ", m " << tokens);
    c.tokens = tokens;
    check_result(layer.run(c), exact_sums);
  }
}

void check_tails(const std::vector<std::string>& pins, const std::vector<i64>& token_counts, const std::vector<i64>& widths) {
  for (const i64 intermediate : widths) check_tokens(case_of(128, intermediate, kNvfp4, Activation::relu2, pins), token_counts);
}

}  // namespace

TEST_CASE("Tails of I through the direct kernels", "[matrix]") { check_tails({}, {1}, {16, 80, 176, 224, 496}); }
TEST_CASE("Tails of I through the direct kernels, the others", WHOLE) { check_tails({}, {1}, {32, 144, 352, 464, 480, 512}); }
TEST_CASE("Tails of I through the portable kernels", "[matrix]") { check_tails({"n8"}, {2, 9}, {16, 80, 176, 224, 496}); }
TEST_CASE("Tails of I through the portable kernels, the others", WHOLE) { check_tails({"n8"}, {2, 9}, {32, 144, 352, 464, 480, 512}); }
TEST_CASE("Tails of I and H through the wgmma kernels, bit for bit", "[matrix]") { check_tokens(case_of(272, 272, kNvfp4, Activation::relu2, {"w24"}), {2, 24}); }
TEST_CASE("Tails of I and H through the wgmma kernels, bit for bit, the others", WHOLE) {
  check_tokens(case_of(272, 352, kNvfp4, Activation::relu2, {"w24"}), {2, 24});
}
TEST_CASE("Tails of I and H through the wgmma kernels, gated", "[matrix]") {
  check_tokens(case_of(272, 144, kNvfp4, Activation::silu, {"w24"}), {2, 24});
  check_tokens(case_of(288, 224, kMxfp4, Activation::swiglu_oai, {"w24"}), {24});
}
TEST_CASE("Tails of I and H through the wgmma kernels, gated, the others", WHOLE) {
  for (const i64 intermediate : {176, 224}) check_tokens(case_of(272, intermediate, kNvfp4, Activation::silu, {"w24"}), {2, 24});
}
TEST_CASE("Tails of H through direct and portable kernels", "[matrix]") {
  for (const i64 hidden : {80, 272}) {
    check_tokens(case_of(hidden, 176, kNvfp4, Activation::relu2), {1});
    check_tokens(case_of(hidden, 176, kNvfp4, Activation::relu2, {"n8"}), {9});
  }
}
TEST_CASE("Tails of H through direct and portable kernels, the others", WHOLE) {
  check_tokens(case_of(400, 176, kNvfp4, Activation::relu2), {1});
  check_tokens(case_of(400, 176, kNvfp4, Activation::relu2, {"n8"}), {9});
}
TEST_CASE("Block widths at a ragged shape", "[matrix]") {
  for (const char* pin : {"n16", "n32", "n64"}) check_tokens(case_of(144, 112, kNvfp4, Activation::relu2, {pin}), {33});
}
TEST_CASE("The compact last group of MXFP4", "[matrix]") {
  check_tokens(case_of(128, 312, kMxfp4, Activation::silu), {1});
  check_tokens(case_of(128, 312, kMxfp4, Activation::silu, {"n8"}), {8});
  check_tokens(case_of(128, 112, kMxfp4, Activation::relu2, {"n8"}), {24});
}

TEST_CASE("Every format, in both types of activations, at a ragged shape", "[matrix]") {
  const QuantFormat formats[] = {kMxfp4, kMxfp4Wide, kNvfp4, int4_format(32), int4_format(32, true), int4_format(kWholeRow, true, ScaleType::f16)};
  const QuantFormat format = formats[GENERATE(0, 1, 2, 3, 4, 5)];
  for (const DType dtype : {DType::bf16, DType::f16}) {
    LayerCase c = case_of(160, 96, format, Activation::relu2, {"n8"});
    c.problem.dtype = dtype;
    check_tokens(c, {9});
  }
  check_tokens(case_of(160, 96, format, Activation::relu2), {1});
}

TEST_CASE("Every activation at a ragged shape", "[matrix]") {
  const Activation activation = GENERATE(Activation::silu, Activation::swiglu_oai, Activation::geglu_tanh, Activation::geglu_erf, Activation::situ,
                                         Activation::silu_ungated, Activation::gelu_ungated);
  check_tokens(case_of(160, 96, kMxfp4, activation, {"n8"}), {9});
}

TEST_CASE("R1: token counts across every boundary of the plan, and at random", "[matrix]") {
  LayerCase c = exact(case_of(128, 80, kNvfp4, Activation::relu2));
  c.fillings = {0xff};
  c.max_tokens = 180;
  PreparedLayer layer(c);
  std::vector<i64> counts;
  for (const Bucket& bucket : layer.plan().buckets) {
    for (const i64 m : {bucket.first_tokens, bucket.last_tokens}) counts.push_back(m);
  }
  std::mt19937_64 random(20260101);
  for (int i = 0; i < 6; ++i) counts.push_back(static_cast<i64>(random() % 180) + 1);
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  REQUIRE(layer.plan().buckets.size() >= 4);
  for (const i64 tokens : counts) {
    c.tokens = tokens;
    INFO("m " << tokens);
    check_result(layer.run(c), true);
  }
}

TEST_CASE("N09, N11: any id, any multiplicity: foreign ids contribute nothing, duplicates count each time", "[matrix]") {
  LayerCase c = exact(case_of(96, 48, kNvfp4, Activation::relu2));
  c.problem.shape.experts = 64;
  c.problem.shape.topk = 4;
  c.max_tokens = 24;
  PreparedLayer layer(c);
  const i64 odd[] = {-1, 64, INT_MAX, INT_MIN, 3, 63, 65, -7, 3};
  for (const i64 tokens : {1, 5, 24}) {
    c.tokens = tokens;
    const std::size_t pairs = static_cast<std::size_t>(tokens * 4);
    for (const i64 everywhere : {i64{0}, i64{63}}) {
      c.ids.assign(pairs, everywhere);
      check_result(layer.run(c), true);
    }
    c.ids.assign(pairs, -1);
    const LayerResult none = layer.run(c);
    check_result(none, true);
    CHECK(std::all_of(none.out.begin(), none.out.end(), [](u16 bits) { return bits == 0; }));
    for (std::size_t p = 0; p < pairs; ++p) c.ids[p] = odd[p % 9];
    check_result(layer.run(c), true);
    c.id_type = IdType::i64;
    for (std::size_t p = 0; p < pairs; ++p) c.ids[p] = p % 3 == 0 ? (i64{1} << 32) + 3 : odd[p % 9];
    check_result(layer.run(c), true);
    c.id_type = IdType::i32;
  }
}

TEST_CASE("N12: no tokens: nothing runs, and the next run is right", "[matrix]") {
  LayerCase c = exact(case_of(96, 48, kNvfp4, Activation::relu2));
  c.max_tokens = 5;
  PreparedLayer layer(c);
  c.tokens = 0;
  const LayerResult nothing = layer.run(c);
  CHECK(nothing.error == "");
  CHECK(nothing.out.empty());
  c.tokens = 5;
  check_result(layer.run(c), true);
}

TEST_CASE("N31: expert counts around the powers of two, and top-k up to 32", "[matrix]") {
  for (const auto& [experts, topk] : {std::pair<i64, i64>{1, 1}, {2, 2}, {127, 8}, {128, 8}, {129, 8}, {1023, 8}, {1024, 8}, {1025, 8}, {64, 32}}) {
    INFO(experts << " experts, top-" << topk);
    LayerCase c = exact(case_of(64, 32, kNvfp4, Activation::relu2));
    c.problem.shape.experts = experts;
    c.problem.shape.topk = topk;
    c.pins = {"n8"};
    c.fillings = {0xff};
    c.tokens = 17;
    check_result(run_layer(c), true);
  }
}

TEST_CASE("K5: a grid of thousands of empty blocks beside a few", "[matrix]") {
  LayerCase c = exact(case_of(64, 32, kNvfp4, Activation::relu2, {"n8"}));
  c.problem.shape.experts = 256;
  c.max_tokens = 64;
  c.tokens = 2;
  c.fillings = {0xff};
  check_result(run_layer(c), true);
}

#endif
