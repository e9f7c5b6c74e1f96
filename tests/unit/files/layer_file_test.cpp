// Layers out of files: every family of names packs to the bytes of the layer it was written from, and every fault names its tensor.
#include "runtime/files/layer_file.hpp"

#include <cstring>
#include <random>

#include "runtime/reference/reference.hpp"
#include "runtime/weights/float_bits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"
#include "tests/support/mutate.hpp"
#include "tests/support/temp_dir.hpp"

namespace w4moe {
namespace {

using test::int4_format;
using test::packed;
using test::small_problem;

bool has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos) {
      UNSCOPED_INFO("'" << part << "' not in: " << text);
      return false;
    }
  }
  return true;
}

/// A file being put together in memory.
struct FileMaker {
  std::vector<FileTensor> tensors;
  std::vector<std::vector<std::byte>> owned;
  std::map<std::string, std::string> metadata;

  void add(const std::string& name, const std::string& dtype, std::vector<i64> shape, const void* data) {
    i64 bytes = safetensors_dtype_bits(dtype);
    for (const i64 dim : shape) bytes *= dim;
    tensors.push_back(FileTensor{name, dtype, std::move(shape), static_cast<const std::byte*>(data), bytes / 8});
  }
  template <class T>
  void add_values(const std::string& name, const std::string& dtype, std::vector<i64> shape, const std::vector<T>& values) {
    owned.emplace_back(values.size() * sizeof(T));
    std::memcpy(owned.back().data(), values.data(), owned.back().size());
    add(name, dtype, std::move(shape), owned.back().data());
  }
  FileTensor& at(const std::string& name) {
    for (FileTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    throw std::runtime_error("no tensor " + name);
  }
  std::vector<std::byte> bytes() const {
    const Result<std::string> header = safetensors_header(tensors, metadata);
    if (!header) throw std::runtime_error(header.error().message);
    std::vector<std::byte> all(header->size());
    std::memcpy(all.data(), header->data(), header->size());
    for (const FileTensor& tensor : tensors) all.insert(all.end(), tensor.data, tensor.data + tensor.bytes);
    return all;
  }
  std::string message(const std::string& prefix = {}) const {
    const std::vector<std::byte> all = bytes();
    const Result<LayerFile> layer = read_layer({*SafetensorsFile::parse(all, "f")}, prefix);
    return layer ? std::string{} : layer.error().message;
  }
};

constexpr Projection kAll[] = {Projection::gate, Projection::up, Projection::down};

SyntheticOptions per_expert() {
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::separate;
  options.per_expert_tensors = true;
  options.bias_type = SourceType::f32;
  return options;
}

const SourceMatrix& matrix_of(const SourceWeights& s, Projection p) { return p == Projection::gate ? s.gate : p == Projection::up ? s.up : s.down; }

/// The checkpoint's problem and packed bytes are those of the layer it was made from.
void check_file(const FileMaker& file, const Problem& problem, const std::vector<std::byte>& expected, const char* family) {
  const std::vector<std::byte> all = file.bytes();
  Result<LayerFile> layer = read_layer({*SafetensorsFile::parse(all, "f")});
  INFO((layer ? std::string{} : layer.error().message));
  REQUIRE(layer);
  CHECK(layer->family == family);
  CHECK(layer->problem.shape.hidden == problem.shape.hidden);
  CHECK(layer->problem.shape.intermediate == problem.shape.intermediate);
  CHECK(layer->problem.shape.experts == problem.shape.experts);
  CHECK(to_string(layer->problem.format) == to_string(problem.format));
  CHECK(layer->problem.has_bias == problem.has_bias);
  CHECK(is_gated(layer->problem.activation) == is_gated(problem.activation));
  layer->problem.shape = problem.shape;
  layer->problem.compact_tail = problem.compact_tail;
  CHECK(packed(layer->problem, layer->source) == expected);
}

FileMaker gpt_oss_file(const SyntheticLayer& layer, const Problem& problem) {
  const i64 experts = problem.shape.experts;
  const i64 hidden = problem.shape.hidden;
  const i64 features = problem.shape.intermediate;
  FileMaker file;
  const std::string prefix = "model.layers.3.mlp.experts.";
  file.add(prefix + "gate_up_proj_blocks", "U8", {experts, 2 * features, hidden / 32, 16}, layer.source.gate_up.codes[0].data);
  file.add(prefix + "gate_up_proj_scales", "U8", {experts, 2 * features, hidden / 32}, layer.source.gate_up.scales[0].data);
  file.add(prefix + "gate_up_proj_bias", "BF16", {experts, 2 * features}, layer.source.gate_up.bias[0].data);
  file.add(prefix + "down_proj_blocks", "U8", {experts, hidden, features / 32, 16}, layer.source.down.codes[0].data);
  file.add(prefix + "down_proj_scales", "U8", {experts, hidden, features / 32}, layer.source.down.scales[0].data);
  file.add(prefix + "down_proj_bias", "BF16", {experts, hidden}, layer.source.down.bias[0].data);
  file.add_values<u16>("model.layers.3.mlp.router.weight", "BF16", {1}, {0});
  return file;
}

Problem gpt_oss_problem() {
  Problem problem = small_problem(64, 96, 3, kMxfp4, Activation::swiglu_oai);
  problem.has_bias = true;
  return problem;
}

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

TEST_CASE("activation and its parameters from the file's metadata; unknown ones are errors") {
  const Problem problem = gpt_oss_problem();
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::interleaved;
  const SyntheticLayer layer = make_layer(problem, options);
  FileMaker file = gpt_oss_file(layer, problem);
  const auto with = [&](std::map<std::string, std::string> metadata) {
    file.metadata = std::move(metadata);
    const std::vector<std::byte> all = file.bytes();
    return read_layer({*SafetensorsFile::parse(all, "f")});
  };
  Result<LayerFile> read = with({{"format", "pt"}, {"activation", "silu"}, {"limit", "10"}});
  REQUIRE(read);
  CHECK(read->problem.activation == Activation::silu);
  CHECK((read->problem.params.has_limit == 1 && read->problem.params.limit == 10.0f));
  read = with({{"alpha", "1.5"}, {"beta", "0"}, {"limit", "none"}});
  REQUIRE(read);
  CHECK((read->problem.params.alpha == 1.5f && read->problem.params.beta == 0.0f && read->problem.params.has_limit == 0));
  CHECK(has(with({{"activation", "swiglu"}}).error().message, {"swiglu", "silu"}));
  CHECK(has(with({{"activation", "relu2"}}).error().message, {"relu2", "gate"}));
  CHECK(has(with({{"limit", "7x"}}).error().message, {"limit", "7x"}));
  CHECK(has(with({{"alpha", ""}}).error().message, {"alpha"}));
}

TEST_CASE("inputs: tokens, ids and weights of both types, logits, and what does not fit") {
  const std::vector<u16> x(2 * 8, 0x3f80);
  FileMaker file;
  file.add_values<u16>("x", "BF16", {2, 8}, x);
  file.add_values<i64>("topk_ids", "I64", {2, 3}, {0, 1, 2, i64{1} << 40, -1, 5});
  file.add_values<u16>("topk_weights", "BF16", {2, 3}, std::vector<u16>(6, 0x3f00));
  std::vector<std::byte> all = file.bytes();
  Result<LayerInputs> in = read_inputs(*SafetensorsFile::parse(all, "i"));
  REQUIRE(in);
  CHECK((in->inputs.tokens == 2 && in->hidden == 8 && in->topk == 3 && in->dtype == DType::bf16));
  CHECK((in->inputs.id_type == IdType::i64 && in->inputs.router_dtype == DType::bf16));
  CHECK(static_cast<const i64*>(in->inputs.ids)[3] == i64{1} << 40);

  FileMaker logits;
  logits.add_values<u16>("x", "F16", {2, 8}, x);
  logits.add_values<float>("router_logits", "F32", {2, 4}, {0, 2, 1, 2, 5, 5, 5, -5});
  all = logits.bytes();
  in = read_inputs(*SafetensorsFile::parse(all, "i"), 2);
  REQUIRE(in);
  CHECK(in->dtype == DType::f16);
  CHECK(in->ids32 == std::vector<i32>{1, 3, 0, 1});
  CHECK(in->weights == std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f});
  in = read_inputs(*SafetensorsFile::parse(all, "i"), 3);
  CHECK(in->weights[2] == Approx(std::exp(-1.0) / (2 + std::exp(-1.0))));
  CHECK(has(read_inputs(*SafetensorsFile::parse(all, "i"), 5).error().message, {"router_logits", "top-k 5", "1..4"}));

  const auto message = [&](const FileMaker& maker) {
    const std::vector<std::byte> bytes = maker.bytes();
    const Result<LayerInputs> read = read_inputs(*SafetensorsFile::parse(bytes, "i"));
    return read ? std::string{} : read.error().message;
  };
  FileMaker bad = file;
  bad.at("x").dtype = "I16";
  CHECK(has(message(bad), {"'x'", "I16", "BF16 or F16"}));
  bad = file;
  bad.at("topk_ids").shape = {3, 2};
  CHECK(has(message(bad), {"'topk_ids'", "[3, 2]", "[2, any]"}));
  bad = file;
  bad.at("topk_weights").dtype = "F16";
  CHECK(has(message(bad), {"'topk_weights'", "F16", "F32 or BF16"}));  // N27
  bad = file;
  bad.at("topk_ids").name = "ids";
  CHECK(has(message(bad), {"'topk_ids'", "missing"}));
  bad = file;
  bad.add_values<float>("router_logits", "F32", {2, 4}, std::vector<float>(8));
  CHECK(has(message(bad), {"router_logits", "topk_ids"}));
}

TEST_CASE("a layer on disk, its inputs and its output, through the fp64 reference") {
  const test::TempDir dir;
  const Problem problem = gpt_oss_problem();
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::interleaved;
  const SyntheticLayer layer = make_layer(problem, options);
  const FileMaker file = gpt_oss_file(layer, problem);
  const std::string path = (dir.path() / "layer.safetensors").string();
  REQUIRE(write_safetensors(path, file.tensors));
  const SyntheticInputs made = make_inputs(problem, 3);
  const std::vector<FileTensor> inputs{{"x", "BF16", {3, 64}, reinterpret_cast<const std::byte*>(made.x.data()), 3 * 64 * 2},
                                       {"topk_ids", "I32", {3, 2}, reinterpret_cast<const std::byte*>(made.ids.data()), 24},
                                       {"topk_weights", "F32", {3, 2}, reinterpret_cast<const std::byte*>(made.weights.data()), 24}};
  const std::string in_path = (dir.path() / "in.safetensors").string();
  REQUIRE(write_safetensors(in_path, inputs));

  Result<LayerFile> read = open_layer({path});
  REQUIRE(read);
  const Result<LayerInputs> in = open_inputs(in_path);
  REQUIRE(in);
  read->problem.shape.topk = in->topk;
  std::vector<double> out(3 * 64);
  std::vector<double> expected(3 * 64);
  REQUIRE(reference_fp64(read->problem, read->source, in->inputs, out));
  REQUIRE(reference_fp64(problem, layer.source, made.inputs, expected));
  CHECK(out == expected);

  std::vector<u16> bits;
  for (const double v : out) bits.push_back(bf16_of(static_cast<float>(v)));
  const std::string out_path = (dir.path() / "out.safetensors").string();
  REQUIRE(write_output(out_path, DType::bf16, 3, 64, bits));
  const Result<SafetensorsFile> written = SafetensorsFile::open(out_path);
  REQUIRE(written);
  CHECK(written->find("out")->shape == std::vector<i64>{3, 64});
  CHECK(std::memcmp(written->find("out")->data, bits.data(), bits.size() * 2) == 0);
}

TEST_CASE("damaged layer files end in an error or in a layer that can be packed or refused, never in a fault") {
  const Problem problem = small_problem(32, 32, 2, kNvfp4);
  const SyntheticLayer layer = make_layer(problem, per_expert());
  FileMaker file;
  for (std::size_t e = 0; e < 2; ++e) {
    for (const Projection p : kAll) {
      const std::string name = "experts." + std::to_string(e) + (p == Projection::gate ? ".w1." : p == Projection::up ? ".w3." : ".w2.");
      const SourceMatrix& m = matrix_of(layer.source, p);
      file.add(name + "weight", "U8", m.codes[e].shape, m.codes[e].data);
      file.add(name + "weight_scale", "F8_E4M3", m.scales[e].shape, m.scales[e].data);
      file.add(name + "weight_scale_2", "F32", {}, &layer.source.up_global[e]);
    }
  }
  const std::string header = safetensors_header(file.tensors)->substr(8);
  const std::vector<std::byte> good = file.bytes();
  const std::span<const std::byte> data = std::span(good).subspan(8 + header.size());
  std::mt19937 rng(11);
  i64 read = 0;
  for (i64 round = 0; round < 3000; ++round) {
    const std::string damaged = test::mutate(header, rng, {"experts.", "w1", "weight", "qweight", "weight_packed", "\"F4\"", "\"I32\"", "0", "1", "8", "64", "4611686018427387904", ".", "scale"});
    const u64 length = damaged.size();
    std::vector<std::byte> bytes(8 + damaged.size());
    std::memcpy(bytes.data(), &length, 8);
    std::memcpy(bytes.data() + 8, damaged.data(), damaged.size());
    bytes.insert(bytes.end(), data.begin(), data.end());
    const Result<SafetensorsFile> parsed = SafetensorsFile::parse(bytes, "f");
    if (!parsed) continue;
    const Result<LayerFile> result = read_layer({*parsed});
    if (!result) continue;
    ++read;
    const Result<i64> size = prepared_weight_bytes(result->problem);
    if (!size || *size > (1 << 20)) continue;
    std::vector<std::byte> dest(static_cast<std::size_t>(*size));
    (void)pack_on_cpu(result->problem, result->source, dest);
  }
  CHECK(read > 0);
}

}  // namespace
}  // namespace w4moe
