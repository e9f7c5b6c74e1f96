// Checkpoints that are damaged, contradict themselves or are of another kind: each is refused with what is wrong and where.
#include <random>

#include "runtime/files/checkpoint_config.hpp"
#include "runtime/files/checkpoint_index.hpp"
#include "tests/support/mutate.hpp"
#include "tests/unit/checkpoint/made.hpp"

namespace w4moe {
namespace {

using test::Copy;
using test::has;
using test::made;
using test::refusal;

constexpr const char* kIndex = "model.safetensors.index.json";

FileTensor* find(std::vector<FileTensor>& tensors, const std::string& end) {
  for (FileTensor& tensor : tensors) {
    if (std::string_view(tensor.name).ends_with(end)) return &tensor;
  }
  throw std::runtime_error("no tensor " + end);
}

TEST_CASE("shards and index must agree") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  {
    Copy c("gpt-oss");
    test::fs::remove(c.path() / second);
    CHECK(has(refusal(c.path()), {second.c_str(), "cannot be opened", "named by model.safetensors.index.json"}));
  }
  {
    Copy c("gpt-oss");
    test::fs::resize_file(c.path() / second, test::fs::file_size(c.path() / second) - 1);
    CHECK(has(refusal(c.path()), {second.c_str()}));
  }
  {
    Copy c("gpt-oss");  // a tensor of the second shard in the first one too
    static const std::byte kBytes[4 * 96 * 2] = {};
    c.rewrite(first, [](std::vector<FileTensor>& t) { t.push_back({"model.layers.1.mlp.experts.down_proj_bias", "BF16", {4, 96}, kBytes, sizeof(kBytes)}); });
    CHECK(has(refusal(c.path()), {"model.layers.1.mlp.experts.down_proj_bias", first.c_str(), second.c_str()}));
  }
  {
    Copy c("gpt-oss");
    c.rewrite(first, [](std::vector<FileTensor>& t) { t.erase(t.begin()); });
    CHECK(has(refusal(c.path()), {"which does not hold it", first.c_str()}));
  }
  {
    Copy c("gpt-oss");
    c.replace(kIndex, "\"model.layers.0.mlp.experts.down_proj_bias\": \"" + first + "\", ", "");
    CHECK(has(refusal(c.path()), {"does not name the expert tensor", "down_proj_bias"}));
  }
  for (const char* name : {"../model-00001-of-00002.safetensors", "/etc/passwd", "", ".."}) {
    Copy c("gpt-oss");
    c.replace(kIndex, "\"" + first + "\"", "\"" + std::string(name) + "\"");
    CHECK(has(refusal(c.path()), {"is no plain file name"}));
  }
  {
    Copy c("gpt-oss");
    c.replace(kIndex, "{\"model.embed_tokens.weight\": ", "{\"model.embed_tokens.weight\": \"x\", \"model.embed_tokens.weight\": ");
    CHECK(has(refusal(c.path()), {"names 'model.embed_tokens.weight' twice"}));
  }
  {
    Copy c("gpt-oss");
    test::fs::remove(c.path() / kIndex);
    CHECK(has(refusal(c.path()), {"2 *.safetensors files", "exactly one"}));
  }
  CHECK(has(refusal(made() / "nothing"), {"nothing", "cannot be opened"}));
}

TEST_CASE("tensors that are missing, of another shape or dtype, or unknown are named") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const std::string file = "model-00001-of-00001.safetensors";
  const auto damaged = [&](const char* family, const std::function<void(std::vector<FileTensor>&)>& change) {
    Copy c(family);
    c.rewrite(file, change);
    test::fs::remove(c.path() / kIndex);  // one file: the index would be the first to complain
    return refusal(c.path());
  };
  CHECK(has(damaged("modelopt-glm", [](auto& t) { find(t, "2.up_proj.weight_scale_2")->name += "x"; }), {"experts.2.up_proj.weight_scale_2", "missing"}));
  CHECK(has(damaged("modelopt-glm", [](auto& t) { find(t, "1.up_proj.weight_scale")->dtype = "U8"; }), {"1.up_proj.weight_scale", "U8", "F8_E4M3"}));
  CHECK(has(damaged("modelopt-glm", [](auto& t) { find(t, "1.down_proj.weight")->shape = {32, 80}; }), {"1.down_proj.weight", "[32, 80]", "[64, 40]"}));
  CHECK(has(damaged("modelopt-glm", [](auto& t) { find(t, "0.up_proj.input_scale")->name = "model.layers.1.mlp.experts.0.up_proj.odd"; }), {"0.up_proj.odd", "ignored"}));
  CHECK(has(damaged("modelopt-glm", [](auto& t) {
              t.erase(std::remove_if(t.begin(), t.end(), [](const FileTensor& x) { return x.name.find("experts.1.") != std::string::npos; }), t.end());
            }),
            {"experts.1.gate_proj.weight", "missing"}));
  CHECK(has(damaged("modelopt-glm", [](auto& t) { *find(t, "0.up_proj.weight") = {find(t, "0.up_proj.weight")->name, "U8", {0, 32}, nullptr, 0}; }), {"0"}));
}

TEST_CASE("scales that are no finite number, and globals that are none") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const std::string file = "model-00001-of-00001.safetensors";
  std::vector<std::byte> bytes;
  const auto with_byte = [&](const char* family, const char* name, std::size_t at, std::vector<u8> values) {
    Copy c(family);
    c.rewrite(file, [&](std::vector<FileTensor>& t) {
      FileTensor* tensor = find(t, name);
      bytes.assign(tensor->data, tensor->data + tensor->bytes);
      std::memcpy(bytes.data() + at, values.data(), values.size());
      tensor->data = bytes.data();
    });
    return refusal(c.path());
  };
  CHECK(has(with_byte("modelopt-glm", "2.up_proj.weight_scale", 4 * 3 + 1, {0x7f}), {"expert 2, up", "row 3, group 1", "not a finite number"}));
  CHECK(has(with_byte("modelopt-glm", "1.gate_proj.weight_scale_2", 0, {0, 0, 0xc0, 0x7f}), {"gate_global of expert 1", "no finite factor"}));
}

TEST_CASE("N25, N26: what the config says must be what the tensors hold") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const auto changed = [](const char* family, const std::string& from, const std::string& to) {
    Copy c(family);
    c.replace("config.json", from, to);
    return refusal(c.path());
  };
  CHECK(has(changed("ct-int4-kimi", "\"group_size\": 32", "\"group_size\": 64"), {"config.json", "groups of 64", "int4:g32"}));
  CHECK(has(changed("ct-int4-kimi", "\"num_bits\": 4", "\"num_bits\": 8"), {"8 bits", "int4:g32"}));
  CHECK(has(changed("ct-int4-kimi", "\"symmetric\": true", "\"symmetric\": false"), {"zero points, but there are none"}));
  CHECK(has(changed("ct-int4-zp", "\"symmetric\": false", "\"symmetric\": true"), {"symmetric codes, but there are zero points"}));
  CHECK(has(changed("ct-int4-kimi", "\"type\": \"int\"", "\"type\": \"float\""), {"floating-point codes"}));
  CHECK(has(changed("ct-int4-kimi", "\"compressed-tensors\"", "\"gptq\""), {"quant_method 'gptq'", "compressed-tensors"}));
  CHECK(has(changed("ct-int4-kimi", "\"compressed-tensors\"", "\"bitsandbytes\""), {"'bitsandbytes' is not known", "accepted: mxfp4"}));
  CHECK(has(changed("ct-int4-kimi", "\"hidden_size\": 128", "\"hidden_size\": 256"), {"hidden_size 256", "128"}));
  CHECK(has(changed("ct-int4-kimi", "\"n_routed_experts\": 4", "\"n_routed_experts\": 5"), {"number of experts 5", "4"}));
  CHECK(has(changed("ct-int4-kimi", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"tanh\""), {"hidden_act 'tanh'", "accepted: silu"}));
  CHECK(has(changed("ct-int4-kimi", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu2\""), {"relu2", "gate rows"}));
  CHECK(has(changed("ct-int4-kimi", "\"hidden_size\": 128", "\"hidden_size\": \"wide\""), {"hidden_size", "whole number"}));
  CHECK(has(changed("deepseek-v4", "\"swiglu_limit\": 10.0", "\"swiglu_limit\": -1"), {"swiglu_limit -1"}));
  CHECK(has(changed("deepseek-v4", "\"fp4\"", "\"fp8\""), {"expert_dtype 'fp8'"}));
  CHECK(has(changed("awq", "\"gemm\"", "\"gemv\""), {"AWQ version 'gemv'", "accepted: gemm"}));
  CHECK(has(changed("gptq", "\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\""), {"'marlin'", "gptq_v2"}));
  CHECK(has(changed("gptq", "\"sym\": false", "\"sym\": true"), {"qzeros", "a zero point that is not 8", "sym"}));
  CHECK(has(changed("gpt-oss", "{", "[{"), {"config.json", "no JSON object"}));
}

TEST_CASE("act-order is refused, in GPTQ and in compressed-tensors") {
  if (made().empty()) W4MOE_SKIP("Python has no numpy");
  const std::string first = "model-00001-of-00002.safetensors";
  std::vector<i32> order(128);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<i32>(i % 4);
  const auto data = reinterpret_cast<const std::byte*>(order.data());
  Copy gptq("gptq");
  gptq.rewrite(first, [&](std::vector<FileTensor>& t) { find(t, "0.w3.g_idx")->data = data; });
  CHECK(has(refusal(gptq.path()), {"0.w3.g_idx", "column 1 belongs to group 1", "act-order"}));

  Copy ct("ct-int4-kimi");
  const std::string name = "language_model.model.layers.1.mlp.experts.0.up_proj.weight_g_idx";
  ct.rewrite(first, [&](std::vector<FileTensor>& t) { t.push_back({name, "I32", {128}, data, 512}); });
  ct.replace(kIndex, "\"weight_map\": {", "\"weight_map\": {\"" + name + "\": \"" + first + "\", ");
  CHECK(has(refusal(ct.path()), {"0.up_proj.weight_g_idx", "act-order"}));
}

TEST_CASE("damaged index and config texts end in a value or in an error") {
  const std::string index = R"({"metadata": {"total_size": 12}, "weight_map": {"a.experts.0.up_proj.weight": "one.safetensors", "b": "two.safetensors"}})";
  const std::string config = R"({"model_type": "gpt_oss", "hidden_size": 64, "num_local_experts": 4, "hidden_act": "silu", "swiglu_limit": 7.0, "text_config": null,
    "quantization_config": {"quant_method": "compressed-tensors", "bits": 4, "group_size": -1, "sym": true, "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32, "symmetric": true, "type": "int"}}}}})";
  REQUIRE(parse_index(index, "i"));
  REQUIRE(parse_checkpoint_config(config, {}, "f"));
  const std::vector<std::string> words{"null", "{}", "[]", "-1", "1e99", "18446744073709551615", "\"x\"", "true", "\"weight_map\"", "\"quantization_config\"", "\xff", "[[[[", "\"../a\""};
  std::mt19937 rng(7);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    refused += !parse_index(test::mutate(index, rng, words), "i");
    const Result<CheckpointConfig> read = parse_checkpoint_config(test::mutate(config, rng, words), test::mutate(config, rng, words), "f");
    refused += !read;
    if (read) (void)read_hints(*read);
  }
  CHECK(refused > 1000);
  CHECK(!parse_index(std::string(100000, '['), "i"));
  CHECK(!parse_checkpoint_config(std::string(100000, '['), {}, "f"));
}

}  // namespace
}  // namespace w4moe
