// Whole layers of the portable family: the kernels that a GPU runs, compiled unchanged, through plan, packer and launches.
#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/lockstep/layer.hpp"

using namespace w4moe;
using namespace w4moe::lockstep;

using test::int4_format;
using test::small_problem;

namespace {

LayerCase layer(i64 hidden, i64 intermediate, QuantFormat format = kMxfp4, Activation activation = Activation::silu, DType dtype = DType::bf16) {
  LayerCase c;
  c.problem = small_problem(hidden, intermediate, 4, format, activation);
  c.problem.dtype = dtype;
  return c;
}

}  // namespace

TEST_CASE("T1: integers through relu2 come out bit for bit, bf16") { check_exact(exact(layer(256, 224, kMxfp4, Activation::relu2))); }
TEST_CASE("T1: integers through relu2 come out bit for bit, fp16 and NVFP4") {
  check_exact(exact(layer(272, 80, kNvfp4, Activation::relu2, DType::f16)));
}
TEST_CASE("T1: integers through a saturated gate come out bit for bit") {
  LayerCase c = exact(layer(256, 64));
  c.problem.has_bias = true;
  c.data.gate_bias = 256.0f;
  check_exact(c);
}

TEST_CASE("T1: random MXFP4 layers agree with the mirror") {
  check_close(layer(256, 224));
  check_close(layer(320, 96, kMxfp4, Activation::silu, DType::f16));
}
TEST_CASE("T1: random MXFP4 layers with whole exponents agree with the mirror") { check_close(layer(256, 160, kMxfp4Wide)); }
TEST_CASE("T1: random NVFP4 layers agree with the mirror") {
  check_close(layer(256, 224, kNvfp4));
  check_close(layer(144, 80, kNvfp4, Activation::silu, DType::f16));
}
TEST_CASE("T1: random INT4 layers agree with the mirror") {
  check_close(layer(256, 224, int4_format(32)));
  check_close(layer(256, 192, int4_format(64, true, ScaleType::f16), Activation::silu, DType::f16));
  check_close(layer(256, 72, int4_format(kWholeRow)));
}

TEST_CASE("T1: tails of H and I, and a compact last group") {
  check_close(layer(96, 32));
  check_close(layer(160, 40));   // compact_tail: 40 = 32 + 8
  check_close(layer(80, 16, kNvfp4));
}

TEST_CASE("M1: every activation agrees with the mirror") {
  const Activation activation = GENERATE(Activation::swiglu_oai, Activation::geglu_tanh, Activation::geglu_erf, Activation::situ,
                                         Activation::silu_ungated, Activation::gelu_ungated);
  check_close(layer(128, 64, kMxfp4, activation));
}

TEST_CASE("M2, M4: biases, the router weight on the input, bf16 router weights and 64-bit ids") {
  LayerCase c = layer(128, 96);
  c.problem.has_bias = true;
  c.id_type = IdType::i64;
  c.router_dtype = DType::bf16;
  check_close(c);
  c.problem.weight_on_input = true;
  check_close(c);
}

TEST_CASE("R1: ids outside 0..E-1 contribute nothing") {
  LayerCase c = layer(128, 64);
  c.strange_ids = true;
  c.tokens = 33;
  check_close(c);
  c.id_type = IdType::i64;
  check_close(c);
}

TEST_CASE("N11: the CTAs of few routes find their blocks whatever the ids are") {
  LayerCase c = layer(128, 64, kMxfp4, Activation::relu2);
  c.problem.shape.experts = 96;
  c.problem.shape.topk = 8;
  c.tokens = 6;  // 48 routes
  c.problem.shape.max_tokens = 6;
  const auto with = [&](auto id_of) {
    c.ids.clear();
    for (i64 p = 0; p < 48; ++p) c.ids.push_back(id_of(p));
    check_exact(exact(c));
  };
  REQUIRE(PreparedLayer(c).plan().bucket_for(6).self_routed);
  with([](i64 p) { return p; });                                      // each its own
  with([](i64) { return 17; });                                       // one expert: six blocks of eight
  with([](i64 p) { return p % 8 < 3 ? 5 : p % 3; });                  // repeated inside a token
  with([](i64 p) { return p < 20 ? 3 : p < 25 ? -1 : p % 2 == 0 ? 96 : 47; });  // blocks of 8, 8, 4, ids of nobody, 16 and a rest
  c.ids.assign(48, -1);
  const LayerResult none = run_layer(exact(c));
  CHECK(none.error == "");
  CHECK(std::all_of(none.out.begin(), none.out.end(), [](u16 bits) { return bits == 0; }));
  c.problem.weight_on_input = true;
  c.problem.has_bias = true;
  c.id_type = IdType::i64;
  with([](i64 p) { return p * 7 % 11; });
}

TEST_CASE("R4: rows may lie apart, and what lies between them is not touched") {
  LayerCase c = layer(128, 64);
  c.row_padding_elems = 24;
  check_close(c);
}

TEST_CASE("T1: one token goes through the direct kernels, and through routing where they are pinned away") {
  LayerCase c = layer(256, 96);
  c.tokens = 1;
  c.problem.has_bias = true;
  check_close(c);
  c.strange_ids = true;
  check_close(c);
  c.pins = {"no-direct"};
  check_close(c);
}

TEST_CASE("T1: blocks of every width") {
  LayerCase c = layer(128, 64);
  c.tokens = 33;
  for (const i32 rows : {8, 16, 32, 64}) {
    c.tile = GemmTile{rows, 2, 2, 2, 1, 3, 1};
    check_close(c);
  }
}

TEST_CASE("T1: the order of threads and CTAs changes no bit") {
  LayerCase c = layer(128, 96);
  const LayerResult ordered = run_layer(c);
  REQUIRE(ordered.error == "");
  c.device.random = true;
  for (const u64 seed : {1, 2, 3}) {
    c.device.seed = seed;
    c.device.resident_ctas = static_cast<int>(seed);
    const LayerResult random = run_layer(c);
    REQUIRE(random.error == "");
    CHECK(random.out == ordered.out);
  }
}

TEST_CASE("K5: layers in one stream overlap and give the same bits, several times over") {
  for (const i64 tokens : {1, 9}) {
    LayerCase c = layer(128, 96);
    c.tokens = tokens;
    c.tile = tokens == 1 ? std::nullopt : std::optional(GemmTile{8, 2, 1, 1, 1, 2, 1});
    const LayerResult once = run_layer(c);
    REQUIRE(once.error == "");
    c.times = 3;
    c.device.resident_ctas = 4;
    CHECK(run_layer(c).out == once.out);
    c.device.random = true;
    CHECK(run_layer(c).out == once.out);
  }
}

TEST_CASE("T1: a NaN token spoils its own row and no other") {
  LayerCase c = layer(160, 40);
  c.nan_token = 4;
  const LayerResult result = run_layer(c);
  REQUIRE(result.error == "");
  for (i64 t = 0; t < c.tokens; ++t) {
    const u16 bits = result.out[static_cast<std::size_t>(t * c.problem.shape.hidden)];
    CHECK(((bits & 0x7fff) > 0x7f80) == (t == c.nan_token));
  }
}
