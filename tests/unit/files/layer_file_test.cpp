// Layers out of files: every family of names packs to the bytes of the layer it was written from, and every fault names its tensor.
#include "tests/unit/files/file_maker.hpp"

namespace w4moe {
namespace {

TEST_CASE("MXFP4 as gpt-oss ships it") {
  const Problem problem = gpt_oss_problem();
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::interleaved;
  const SyntheticLayer layer = make_layer(problem, options);
  FileMaker file = gpt_oss_file(layer, problem);
  check_file(file, problem, packed(problem, layer.source), "gpt-oss");

  const std::vector<std::byte> all = file.bytes();
  const Result<LayerFile> read = read_layer({*SafetensorsFile::parse(all, "f")}, "model.layers.3.mlp");
  REQUIRE(read);
  CHECK(read->problem.activation == Activation::swiglu_oai);
  CHECK(read->problem.params.limit == 7.0f);
  CHECK(read->prefix == "model.layers.3.mlp.experts.");

  FileMaker bad = file;
  bad.at("model.layers.3.mlp.experts.gate_up_proj_scales").shape = {3, 96, 4};
  CHECK(has(bad.message(), {"model.layers.3.mlp.experts.gate_up_proj_scales", "[3, 96, 4]", "[3, 192, 2]"}));
  bad = file;
  bad.at("model.layers.3.mlp.experts.down_proj_blocks").shape = {3, 32, 3, 32};
  CHECK(has(bad.message(), {"gate_up_proj_blocks", "[3, 192, 2, 16]"}));
  bad = file;
  bad.at("model.layers.3.mlp.experts.gate_up_proj_bias").name = "model.layers.3.mlp.experts.gate_up_proj_bia";
  CHECK(has(bad.message(), {"gate_up_proj_bias", "missing"}));
  bad = file;
  bad.add_values<u8>("model.layers.3.mlp.experts.down_proj_more", "U8", {1}, {0});
  CHECK(has(bad.message(), {"down_proj_more", "ignored"}));
}

TEST_CASE("several layers: one is named by its prefix, and the error lists them") {
  const Problem problem = gpt_oss_problem();
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::interleaved;
  const SyntheticLayer layer = make_layer(problem, options);
  FileMaker file = gpt_oss_file(layer, problem);
  FileMaker two = file;
  for (FileTensor tensor : file.tensors) {
    tensor.name.replace(tensor.name.find(".3."), 3, ".4.");
    two.tensors.push_back(tensor);
  }
  CHECK(has(two.message(), {"2 layers", "model.layers.3.mlp", "model.layers.4.mlp"}));
  CHECK(has(two.message("model.layers.5.mlp"), {"model.layers.5.mlp", "model.layers.3.mlp"}));
  for (const char* prefix : {"model.layers.4.mlp", "model.layers.4.mlp.", "model.layers.4.mlp.experts.", "model.layers.4.mlp.experts"}) {
    CHECK(two.message(prefix).empty());
  }
  FileMaker none;
  none.add_values<u16>("model.layers.3.mlp.shared_experts.0.weight", "BF16", {1}, {0});
  CHECK(has(none.message(), {"no expert tensors", "shared_experts.0.weight"}));
  // Shards: the same tensor in two files is an error, different ones are one layer.
  const std::vector<std::byte> bytes = file.bytes();
  FileMaker first = file;
  FileMaker second = file;
  first.tensors.resize(2);
  second.tensors.erase(second.tensors.begin(), second.tensors.begin() + 2);
  const std::vector<std::byte> first_bytes = first.bytes();
  const std::vector<std::byte> second_bytes = second.bytes();
  const auto parse = [](const std::vector<std::byte>& b) { return *SafetensorsFile::parse(b, "shard"); };
  CHECK(read_layer({parse(second_bytes), parse(first_bytes)}));
  CHECK(has(read_layer({parse(bytes), parse(first_bytes)}).error().message, {"two files"}));
}

TEST_CASE("MXFP4 per expert, codes as bytes or as e2m1, biases, compact tail") {
  for (const i64 features : {96, 40}) {
    for (const bool f4 : {false, true}) {
      Problem problem = small_problem(64, features, 2, kMxfp4);
      problem.has_bias = f4;
      const SyntheticLayer layer = make_layer(problem, per_expert());
      FileMaker file;
      for (std::size_t e = 0; e < 2; ++e) {
        for (const Projection p : kAll) {
          const std::string name = "experts." + std::to_string(e) + (p == Projection::gate ? ".w1." : p == Projection::up ? ".w3." : ".w2.");
          const SourceMatrix& m = matrix_of(layer.source, p);
          std::vector<i64> shape = m.codes[e].shape;
          if (f4) shape[1] *= 2;
          file.add(name + "weight", f4 ? "F4" : "I8", shape, m.codes[e].data);
          file.add(name + "scale", f4 ? "F8_E8M0" : "U8", m.scales[e].shape, m.scales[e].data);
          if (problem.has_bias) file.add(name + "bias", "F32", m.bias[e].shape, m.bias[e].data);
        }
      }
      check_file(file, problem, packed(problem, layer.source), "mxfp4 per expert");
      FileMaker bad = file;
      bad.at("experts.1.w3.scale").name = "experts.1.w3.scales";
      CHECK(has(bad.message(), {"experts.1.w3.scale", "missing"}));
      bad = file;
      bad.at("experts.1.w3.scale").name = "experts.7.w3.scale";
      CHECK(has(bad.message(), {"experts.1.w3.scale", "missing"}));
      bad = file;
      bad.at("experts.1.w3.scale").name = "experts.99999999.w3.scale";
      CHECK(has(bad.message(), {"experts.99999999.w3.scale", "number below"}));
      bad.at("experts.99999999.w3.scale").name = "experts.99999.w3.scale";
      CHECK(has(bad.message(), {"expert 99999"}));
    }
  }
}

TEST_CASE("NVFP4 as ModelOpt and as compressed-tensors ship it; gate and up globals differ") {
  for (const bool modelopt : {true, false}) {
    const Problem problem = small_problem(64, 48, 2, kNvfp4);
    SyntheticOptions options = per_expert();
    options.global_convention = modelopt ? GlobalConvention::multiply : GlobalConvention::reciprocal;
    const SyntheticLayer layer = make_layer(problem, options);
    CHECK(layer.source.gate_global[0] != layer.source.up_global[0]);
    FileMaker file;
    for (std::size_t e = 0; e < 2; ++e) {
      for (const Projection p : kAll) {
        const std::string name = "m.experts." + std::to_string(e) + (p == Projection::gate ? ".gate_proj." : p == Projection::up ? ".up_proj." : ".down_proj.");
        const SourceMatrix& m = matrix_of(layer.source, p);
        const std::vector<float>& globals = p == Projection::gate ? layer.source.gate_global : p == Projection::up ? layer.source.up_global : layer.source.down_global;
        file.add(name + (modelopt ? "weight" : "weight_packed"), "U8", m.codes[e].shape, m.codes[e].data);
        file.add(name + "weight_scale", "F8_E4M3", m.scales[e].shape, m.scales[e].data);
        const std::vector<i64> shape = modelopt ? std::vector<i64>{} : std::vector<i64>{1};
        file.add(name + (modelopt ? "weight_scale_2" : "weight_global_scale"), "F32", shape, &globals[e]);
        file.add_values<float>(name + (modelopt ? "input_scale" : "input_global_scale"), "F32", {1}, {3.5f});
      }
    }
    check_file(file, problem, packed(problem, layer.source), modelopt ? "modelopt" : "compressed-tensors");
    FileMaker bad = file;
    bad.at(modelopt ? "m.experts.1.up_proj.weight_scale_2" : "m.experts.1.up_proj.weight_global_scale").dtype = "I32";
    CHECK(has(bad.message(), {"m.experts.1.up_proj", "I32", "expected one F32"}));
    bad = file;
    bad.at("m.experts.1.down_proj.weight_scale").shape = {48, 4};
    CHECK(has(bad.message(), {"m.experts.1.down_proj.weight_scale", "[48, 4]", "[64, 3]"}));
  }
}

TEST_CASE("INT4 as compressed-tensors ships it, with and without zero points, ungated too") {
  for (const QuantFormat& format : {int4_format(32), int4_format(64, true), int4_format(kWholeRow, false, ScaleType::f16)}) {
    for (const Activation activation : {Activation::silu, Activation::relu2}) {
      const Problem problem = small_problem(128, 64, 2, format, activation);
      SyntheticOptions options = per_expert();
      options.code_words = true;
      options.zero_order = ZeroOrder::nibbles_along_rows;
      const SyntheticLayer layer = make_layer(problem, options);
      FileMaker file;
      for (std::size_t e = 0; e < 2; ++e) {
        for (const Projection p : kAll) {
          if (p == Projection::gate && activation == Activation::relu2) continue;
          const std::string name = "experts." + std::to_string(e) + (p == Projection::gate ? ".gate_proj." : p == Projection::up ? ".up_proj." : ".down_proj.");
          const SourceMatrix& m = matrix_of(layer.source, p);
          file.add(name + "weight_packed", "I32", m.codes[e].shape, m.codes[e].data);
          file.add(name + "weight_scale", format.scale == ScaleType::f16 ? "F16" : "BF16", m.scales[e].shape, m.scales[e].data);
          if (format.has_zero_point) file.add(name + "weight_zero_point", "I32", m.zeros[e].shape, m.zeros[e].data);
          file.add_values<i64>(name + "weight_shape", "I64", {2}, {m.codes[e].shape[0], m.codes[e].shape[1] * 8});
        }
      }
      check_file(file, problem, packed(problem, layer.source), "compressed-tensors");
      FileMaker bad = file;
      const i64 wrong[] = {64, 136};
      bad.at("experts.1.up_proj.weight_shape").data = reinterpret_cast<const std::byte*>(wrong);
      CHECK(has(bad.message(), {"experts.1.up_proj.weight_shape", "[64, 136]", "[64, 128]"}));
    }
  }
}

/// [rows][columns] of 32-bit words to [columns][rows].
std::vector<u32> turned(const SourceTensor& tensor) {
  const i64 rows = tensor.shape[0];
  const i64 columns = tensor.shape[1];
  std::vector<u32> words(static_cast<std::size_t>(rows * columns));
  for (i64 row = 0; row < rows; ++row) {
    for (i64 column = 0; column < columns; ++column) words[static_cast<std::size_t>(column * rows + row)] = static_cast<const u32*>(tensor.data)[row * columns + column];
  }
  return words;
}

TEST_CASE("N25 N26: INT4 as GPTQ and AWQ ship it, zero points in their own encodings") {
  for (const bool awq : {false, true}) {
    const Problem problem = small_problem(128, 64, 2, int4_format(32, true, ScaleType::f16));
    SyntheticOptions options = per_expert();
    options.code_words = true;
    options.code_order = awq ? CodeOrder::awq_words : CodeOrder::low_nibble_first;
    options.scale_layout = ScaleLayout::transposed;
    options.zero_order = awq ? ZeroOrder::awq_words : ZeroOrder::nibbles_along_rows;
    const SyntheticLayer layer = make_layer(problem, options);
    FileMaker file;
    for (std::size_t e = 0; e < 2; ++e) {
      for (const Projection p : kAll) {
        const std::string name = "experts." + std::to_string(e) + (p == Projection::gate ? ".gate_proj." : p == Projection::up ? ".up_proj." : ".down_proj.");
        const SourceMatrix& m = matrix_of(layer.source, p);
        file.add_values<u32>(name + "qweight", "I32", {m.codes[e].shape[1], m.codes[e].shape[0]}, turned(m.codes[e]));
        file.add(name + "scales", "F16", m.scales[e].shape, m.scales[e].data);
        std::vector<u32> zeros = turned(m.zeros[e]);
        if (!awq) {  // stored less one, nibble by nibble
          for (u32& word : zeros) {
            u32 less = 0;
            for (u32 i = 0; i < 32; i += 4) less |= ((((word >> i) & 15u) + 15u) & 15u) << i;
            word = less;
          }
        }
        file.add_values<u32>(name + "qzeros", "I32", {m.zeros[e].shape[1], m.zeros[e].shape[0]}, zeros);
        if (!awq) {
          const i64 k = m.codes[e].shape[1] * 8;
          std::vector<i32> order;
          for (i64 i = 0; i < k; ++i) order.push_back(static_cast<i32>(i / 32));
          file.add_values<i32>(name + "g_idx", "I32", {k}, order);
        }
      }
    }
    check_file(file, problem, packed(problem, layer.source), awq ? "awq" : "gptq");
    if (awq) continue;
    FileMaker bad = file;
    std::vector<i32> order(128, 0);
    bad.at("experts.1.up_proj.g_idx").data = reinterpret_cast<const std::byte*>(order.data());
    CHECK(has(bad.message(), {"experts.1.up_proj.g_idx", "column 32", "act-order"}));
  }
}

}  // namespace
}  // namespace w4moe
