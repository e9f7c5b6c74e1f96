// A layer file's settings and its inputs and output, and files that are damaged.
#include <random>

#include "runtime/reference/reference.hpp"
#include "runtime/weights/float_bits.hpp"
#include "tests/support/mutate.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/files/file_maker.hpp"

namespace w4moe {
namespace {

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
