// The gate for checkpoint tensors: everything wrong is named, with what was expected.
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"

namespace w4moe {
namespace {

using test::int4_format;
using test::small_problem;

/// Applies a change to a good source and returns the message it is refused with; empty if it is accepted.
template <class Change>
std::string refusal(const Problem& problem, const Change& change, const SyntheticOptions& options = {}) {
  SyntheticLayer layer = make_layer(problem, options);
  REQUIRE(validate_source(problem, layer.source));
  change(layer.source);
  const Status status = validate_source(problem, layer.source);
  return status ? std::string{} : status.error().message;
}

bool has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos) {
      UNSCOPED_INFO("'" << part << "' not in: " << text);
      return false;
    }
  }
  return true;
}

TEST_CASE("orders that the format needs must be named") {
  const Problem problem = small_problem(64, 32, 2, int4_format(32, true));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.gate_up_order = GateUpOrder::unspecified; }), {"gate_up_order", "interleaved"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.code_order = CodeOrder::unspecified; }), {"code_order", "low_nibble_first"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.code_sign = CodeSign::unspecified; }), {"code_sign", "twos_complement"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.scale_layout = ScaleLayout::unspecified; }), {"scale_layout", "swizzled_128x4"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.scale_layout = ScaleLayout::swizzled_128x4; }), {"8-bit scales"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.zero_order = ZeroOrder::unspecified; }), {"zero_order", "nibbles_along_rows"}));  // N26
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.global_convention = GlobalConvention::unspecified; }), {"global_convention"}));
  CHECK(has(refusal(small_problem(64, 32, 2), [](SourceWeights& s) { s.zero_order = ZeroOrder::bytes; }), {"zero_order", "mxfp4"}));
  CHECK(has(refusal(small_problem(64, 32, 2, kMxfp4, Activation::relu2), [](SourceWeights& s) { s.gate_up_order = GateUpOrder::gate_first; }),
            {"gate_up_order", "relu2"}));
}

TEST_CASE("shapes, dtypes, strides and counts are named with what was expected") {
  const Problem problem = small_problem(64, 32, 3, kNvfp4);
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.codes[0].shape = {3, 64, 17}; }), {"down.codes", "[3, 64, 17]", "[3, 64, 16]"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.codes[0].shape = {2, 64, 16}; }), {"[2, 64, 16]", "[3, 64, 16]"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.gate_up.codes[0].type = SourceType::f32; }), {"gate_up.codes", "f32", "u8 or i8 or i32"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.gate_up.scales[0].type = SourceType::bf16; }), {"gate_up.scales", "bf16", "e4m3 or u8"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.gate_up.scales[0].shape = {3, 64, 2}; }), {"[3, 64, 4]"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.gate_up.scales.clear(); }), {"gate_up.scales", "missing"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.codes[0].data = nullptr; }), {"down.codes", "no data"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.codes[0].strides_elems = {1, 2}; }), {"2 strides for 3"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.codes[0].strides_elems = {1024, 16, 2}; }), {"2 apart along K"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.scales[0].strides_elems = {128, -2, 1}; }), {"stride -2"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.zeros = s.down.scales; }), {"down.zeros", "no zero points"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.bias = s.down.scales; }), {"down.bias", "no bias"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.up = s.down; }), {"up: tensors given"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.up_global.pop_back(); }), {"up_global", "2 values", "3"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down_global[1] = 0.0f, s.global_convention = GlobalConvention::reciprocal; }),
            {"down_global of expert 1"}));

  SyntheticOptions own;
  own.per_expert_tensors = true;
  own.gate_up_order = GateUpOrder::separate;
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.up.codes.pop_back(); }, own), {"up.codes", "2 tensors", "3"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.up.codes[2].shape[0] = 31; }, own), {"up.codes, expert 2", "[31, 32]", "[32, 32]"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.gate.codes[1].type = SourceType::i32, s.gate.codes[1].shape = {32, 8}; }, own), {"gate.codes"}));

  SyntheticOptions swizzled;
  swizzled.scale_layout = ScaleLayout::swizzled_128x4;
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.scales[0].shape = {3, 64, 4}; }, swizzled), {"1536 elements in all"}));
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.scales[0].shape = {3, i64{1} << 62, 4}; }, swizzled), {"1536 elements in all"}));
  CHECK(refusal(problem, [](SourceWeights& s) { s.down.scales[0].shape = {3, 512}; }, swizzled).empty());

  Problem bias = problem;
  bias.has_bias = true;
  CHECK(has(refusal(bias, [](SourceWeights& s) { s.gate_up.bias.clear(); }), {"gate_up.bias", "[64]"}));
}

TEST_CASE("N25: a group that does not divide the row is refused, and so are scales of another group") {
  Problem problem = small_problem(128, 704, 2, int4_format(128));
  CHECK_FALSE(validate_source(problem, SourceWeights{}));
  problem.shape.intermediate = 256;
  CHECK(has(refusal(problem, [](SourceWeights& s) { s.down.scales[0].shape = {2, 128, 4}; }), {"down.scales", "[2, 128, 4]", "[2, 128, 2]"}));
}

TEST_CASE("destinations: size and alignment") {
  const Problem problem = small_problem(64, 32, 2);
  const SyntheticLayer layer = make_layer(problem);
  std::vector<std::byte> dest(static_cast<std::size_t>(*prepared_weight_bytes(problem)) + 16);
  CHECK_FALSE(pack_on_cpu(problem, layer.source, dest));
  CHECK_FALSE(pack_on_cpu(problem, layer.source, std::span(dest).subspan(8, dest.size() - 16)));
  CHECK(pack_on_cpu(problem, layer.source, std::span(dest).subspan(0, dest.size() - 16)));
  SourceWeights device = layer.source;
  device.on_device = true;
  CHECK_FALSE(pack_on_cpu(problem, device, std::span(dest).subspan(0, dest.size() - 16)));
}

TEST_CASE("prepared weights of another layout, version or size are refused") {
  const Problem problem = small_problem(64, 32, 2);
  std::vector<std::byte> good = test::packed(problem, make_layer(problem).source);
  CHECK(check_prepared(problem, good));
  Problem other = problem;
  other.shape.intermediate = 64;
  const Status wrong = check_prepared(other, good);
  REQUIRE_FALSE(wrong);
  CHECK(has(wrong.error().message, {"I 32", "I 64"}));
  other = problem;
  other.has_bias = true;
  CHECK_FALSE(check_prepared(other, good));
  CHECK_FALSE(check_prepared(problem, std::span(good).first(good.size() - 1)));
  CHECK_FALSE(check_prepared(problem, std::span(good).first(63)));
  good[16] ^= std::byte{2};  // version
  CHECK(has(check_prepared(problem, good).error().message, {"layout version 3"}));
  good[0] ^= std::byte{1};
  CHECK_FALSE(check_prepared(problem, good));
  CHECK_FALSE(unpack_on_cpu(problem, good, Projection::up, 0));
}

}  // namespace
}  // namespace w4moe
