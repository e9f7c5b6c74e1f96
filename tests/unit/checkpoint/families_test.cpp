// Every family as real models name it: what the reader makes of a checkpoint is, bit for bit, what the script that wrote it meant.
#include <cmath>

#include "runtime/reference/source_decoder.hpp"
#include "tests/unit/checkpoint/made.hpp"

namespace w4moe {
namespace {

using test::layer_of;
using test::made;

constexpr Projection kAll[] = {Projection::gate, Projection::up, Projection::down};

const char* name_of(Projection p) { return p == Projection::gate ? "gate" : p == Projection::up ? "up" : "down"; }

const float* floats(const SafetensorsFile& file, const std::string& name) {
  const FileTensor* tensor = file.find(name);
  return tensor == nullptr ? nullptr : reinterpret_cast<const float*>(tensor->data);
}

u32 bits_of(float value) {
  u32 bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// Where one rank's weights lie in those of the whole layer.
struct Place {
  i64 experts = 0, features = 0;              ///< of the whole layer
  i64 first_expert = 0, first_feature = 0;
};

/// Weights that differ from the expected ones; `exact` asks for the same bits, otherwise for the rounding of one division.
i64 differences(const CheckpointLayer& layer, const SafetensorsFile& expected, const Place& place, bool exact) {
  const SourceDecoder decoder(layer.problem, layer.source);
  const i64 hidden = layer.problem.shape.hidden;
  i64 wrong = 0;
  for (const Projection p : kAll) {
    const float* const want = floats(expected, layer.prefix + name_of(p));
    if (want == nullptr) continue;
    const bool down = p == Projection::down;
    const i64 all_rows = down ? hidden : place.features;
    const i64 all_columns = down ? place.features : hidden;
    std::vector<float> values(static_cast<std::size_t>(decoder.columns(p)));
    std::vector<double> scales(static_cast<std::size_t>(layer.problem.format.groups(decoder.columns(p))));
    for (i64 expert = 0; expert < layer.problem.shape.experts; ++expert) {
      const double global = decoder.global(expert, p);
      for (i64 row = 0; row < decoder.rows(p); ++row) {
        decoder.row(expert, p, row, values.data(), scales.data());
        const i64 at_row = row + (down ? 0 : place.first_feature);
        const float* const want_row = want + ((expert + place.first_expert) * all_rows + at_row) * all_columns + (down ? place.first_feature : 0);
        for (i64 k = 0; k < decoder.columns(p); ++k) {
          const double got = static_cast<double>(values[static_cast<std::size_t>(k)]) * scales[static_cast<std::size_t>(layer.problem.format.group_of(k))] * global;
          const auto close = std::abs(got - static_cast<double>(want_row[k])) <= std::abs(got) * std::ldexp(1.0, -23);
          wrong += exact ? bits_of(static_cast<float>(got)) != bits_of(want_row[k]) : !close;
        }
      }
    }
  }
  return wrong;
}

i64 bias_differences(const CheckpointLayer& layer, const SafetensorsFile& expected, const Place& place) {
  const SourceDecoder decoder(layer.problem, layer.source);
  i64 wrong = 0;
  for (const Projection p : kAll) {
    const float* const want = floats(expected, layer.prefix + name_of(p) + "_bias");
    if (want == nullptr) continue;
    const bool down = p == Projection::down;
    for (i64 expert = 0; expert < layer.problem.shape.experts; ++expert) {
      for (i64 row = 0; row < decoder.rows(p); ++row) {
        const i64 rows = down ? layer.problem.shape.hidden : place.features;
        const float value = want[(expert + place.first_expert) * rows + row + (down ? 0 : place.first_feature)];
        const double counted = down && !layer.source.output_bias ? 0.0 : static_cast<double>(value);
        wrong += decoder.bias(expert, p, row) != counted;
      }
    }
  }
  return wrong;
}

SafetensorsFile expected_of(const std::string& family) {
  Result<SafetensorsFile> file = SafetensorsFile::open((made() / (family + ".expected.safetensors")).string());
  if (!file) throw std::runtime_error(file.error().message);
  return *file;
}

std::vector<std::byte> packed(const CheckpointLayer& layer, int threads = 1) {
  std::vector<std::byte> dest(static_cast<std::size_t>(*prepared_weight_bytes(layer.problem)), std::byte{0xa5});
  PackOptions options;
  options.threads = threads;
  if (Status s = pack_on_cpu(layer.problem, layer.source, dest, options); !s) throw std::runtime_error(s.error().message);
  return dest;
}

TEST_CASE("every family: weights bit for bit, biases, and the packed form compared with the checkpoint") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  for (const std::string family : test::kFamilies) {
    INFO(family);
    const Checkpoint checkpoint = test::open(made() / family);
    const SafetensorsFile expected = expected_of(family);
    i64 read = 0;
    for (const CheckpointEntry& entry : checkpoint.layers()) {
      if (!entry.other_dtype.empty()) continue;
      INFO(entry.prefix);
      const CheckpointLayer layer = layer_of(checkpoint, entry.prefix);
      const Place place{layer.problem.shape.experts, layer.problem.shape.intermediate};
      CHECK(differences(layer, expected, place, family != "ct-nvfp4") == 0);
      CHECK(bias_differences(layer, expected, place) == 0);
      const std::vector<std::byte> one = packed(layer);
      CHECK(verify_prepared(layer.problem, layer.source, one, 2));
      CHECK((one == packed(layer, 3)));
      ++read;
    }
    CHECK(read > 0);
    CHECK(expected.find(checkpoint.layers().front().prefix + "down") != nullptr);
  }
}

TEST_CASE("N18: shards of every family are the slices of the whole, and biases are counted once") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  for (const std::string family : test::kFamilies) {
    INFO(family);
    const Checkpoint checkpoint = test::open(made() / family);
    const SafetensorsFile expected = expected_of(family);
    const std::string prefix = checkpoint.layers().front().prefix;
    const CheckpointLayer whole = layer_of(checkpoint, prefix);
    const i64 experts = whole.problem.shape.experts;
    i64 cut = 0;
    for (const i64 tp : {1, 2, 4}) {
      for (const i64 ep : {i64{1}, experts}) {
        if (!checkpoint.layer(prefix, {{0, tp}, {0, ep}})) continue;
        INFO("tp " << tp << ", ep " << ep);
        i64 owners = 0;
        for (i64 t = 0; t < tp; ++t) {
          for (i64 e = 0; e < ep; ++e) {
            const CheckpointLayer part = layer_of(checkpoint, prefix, {{t, tp}, {e, ep}});
            const Place place{experts, whole.problem.shape.intermediate, part.first_expert, t * part.problem.shape.intermediate};
            CHECK(part.problem.shape.experts * ep == experts);
            CHECK(part.problem.shape.intermediate * tp == whole.problem.shape.intermediate);
            CHECK(part.total_experts == experts);
            CHECK(differences(part, expected, place, family != "ct-nvfp4") == 0);
            CHECK(bias_differences(part, expected, place) == 0);
            CHECK(verify_prepared(part.problem, part.source, packed(part)));
            owners += part.source.output_bias ? 1 : 0;
          }
        }
        if (whole.problem.has_bias) CHECK(owners == ep);
        ++cut;
      }
    }
    CHECK(cut >= 2);
  }
}

TEST_CASE("a rank that does not divide is refused with what would") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const auto message = [](const char* family, const Shard& shard) {
    const Checkpoint checkpoint = test::open(made() / family);
    const Result<CheckpointLayer> layer = checkpoint.layer(checkpoint.layers().front().prefix, shard);
    return layer ? std::string{} : layer.error().message;
  };
  CHECK(test::has(message("gpt-oss", {{0, 3}, {}}), {"model.layers.0.mlp", "tp 3", "I 64", "accepted: 1, 2"}));
  CHECK(test::has(message("gpt-oss", {{0, 4}, {}}), {"tp 4", "64 / 4 = 16", "mxfp4", "accepted tp: 1, 2"}));
  CHECK(test::has(message("gpt-oss", {{}, {0, 3}}), {"ep 3", "4 experts", "accepted: 1, 2, 4"}));
  CHECK(test::has(message("gpt-oss", {{2, 2}, {}}), {"tp rank 2 of 2", "0..1"}));
  CHECK(test::has(message("gpt-oss", {{}, {-1, 2}}), {"ep rank -1"}));
  CHECK(test::has(message("modelopt-glm", {{0, 2}, {}}), {"80 / 2 = 40", "nvfp4", "accepted tp: 1, 5"}));
}

TEST_CASE("what config.json tells: activation, limit, top-k") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const auto problem = [](const char* family) {
    const Checkpoint checkpoint = test::open(made() / family);
    return layer_of(checkpoint, checkpoint.layers().front().prefix).problem;
  };
  CHECK(problem("gpt-oss").activation == Activation::swiglu_oai);
  CHECK(problem("gpt-oss").params.limit == 7.0f);
  CHECK(problem("gpt-oss").has_bias);
  CHECK(problem("gpt-oss").shape.topk == 2);
  CHECK(problem("deepseek-v4").activation == Activation::silu);
  CHECK(problem("deepseek-v4").params.limit == 10.0f);
  CHECK(problem("modelopt-nemotron").activation == Activation::relu2);
  CHECK(problem("modelopt-qwen3").shape.topk == 1);
  CHECK(to_string(problem("gptq-sym").format) == "int4:g32:f16");  // symmetric: no zero points are kept
  CHECK(to_string(problem("gptq").format) == "int4:g32:zp:f16");
  CHECK(to_string(problem("ct-int4-zp").format) == "int4:g64:zp");
}

TEST_CASE("N24: gate and up globals of their own reach the packed form") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const Checkpoint checkpoint = test::open(made() / "modelopt-deepseek");
  const CheckpointLayer layer = layer_of(checkpoint, "1");
  const std::vector<std::byte> prepared = packed(layer);
  for (i64 expert = 0; expert < layer.problem.shape.experts; ++expert) {
    const auto at = static_cast<std::size_t>(expert);
    CHECK(layer.source.gate_global[at] != layer.source.up_global[at]);
    CHECK(unpack_on_cpu(layer.problem, prepared, Projection::gate, expert)->global == layer.source.gate_global[at]);
    CHECK(unpack_on_cpu(layer.problem, prepared, Projection::up, expert)->global == layer.source.up_global[at]);
  }
}

TEST_CASE("layers are listed and named; what is no routed expert is left out by kind") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const Checkpoint checkpoint = test::open(made() / "modelopt-deepseek");
  REQUIRE(checkpoint.layers().size() == 3);
  CHECK(checkpoint.layers()[0].number == 1);
  CHECK(checkpoint.layers()[0].prefix == "model.layers.1.mlp.experts.");
  CHECK(checkpoint.layers()[2].other_dtype == "BF16");
  CHECK(test::has(checkpoint.layer("3").error().message, {"model.layers.3.mlp", "BF16", "NVFP4"}));
  CHECK(test::has(checkpoint.layer("7").error().message, {"'7'", "model.layers.1.mlp"}));
  CHECK(layer_of(checkpoint, "model.layers.2.mlp").prefix == "model.layers.2.mlp.experts.");
  std::map<std::string, std::string> kinds;
  for (const SkippedTensors& s : checkpoint.skipped()) kinds[s.name] = s.kind;
  CHECK(kinds["model.layers.*.mlp.gate.weight"] == "router");
  CHECK(kinds["model.layers.*.mlp.gate.e_score_correction_bias"] == "router");
  CHECK(kinds["model.layers.*.mlp.shared_experts.up_proj.weight"] == "shared expert");
  CHECK(kinds["model.embed_tokens.weight"] == "other");

  const Checkpoint draft = test::open(made() / "deepseek-v4");
  REQUIRE(draft.layers().size() == 2);
  CHECK(draft.layers()[1].prefix == "mtp.0.ffn.experts.");
  CHECK(draft.layers()[1].number == -1);
  CHECK(layer_of(draft, "0").prefix == "layers.0.ffn.experts.");
}

TEST_CASE("verify finds one changed bit") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const Checkpoint checkpoint = test::open(made() / "modelopt-qwen3");
  const CheckpointLayer layer = layer_of(checkpoint, "0");
  std::vector<std::byte> prepared = packed(layer);
  REQUIRE(verify_prepared(layer.problem, layer.source, prepared));
  const WeightLayout layout = weight_layout(layer.problem);
  prepared[static_cast<std::size_t>(layout.fc2_offset_bytes())] ^= std::byte{1};
  const Status status = verify_prepared(layer.problem, layer.source, prepared);
  REQUIRE(!status);
  CHECK(status.error().code == ErrorCode::corrupt);
  CHECK(test::has(status.error().message, {"expert 0, down", "row", "column"}));
}

}  // namespace
}  // namespace w4moe
