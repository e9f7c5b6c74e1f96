// Packed files: what is written is what packing in memory gives, whole or not there, and refused where it is not ours to read.
#include <random>

#include "runtime/files/packed_file.hpp"
#include "tests/support/layers.hpp"
#include "tests/support/mutate.hpp"
#include "tests/unit/checkpoint/made.hpp"

namespace w4moe {
namespace {

using test::has;
using test::small_problem;

/// A layer without a checkpoint behind it.
struct Layer {
  SyntheticLayer memory;
  CheckpointLayer layer;
};

Layer made_layer(const Problem& problem, const std::string& prefix) {
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::separate;
  Layer made{make_layer(problem, options), {}};
  made.layer.prefix = prefix;
  made.layer.family = "modelopt";
  made.layer.problem = problem;
  made.layer.problem.shape.max_tokens = 1;
  made.layer.source = made.memory.source;
  made.layer.total_experts = problem.shape.experts;
  made.layer.fingerprint = "0123456789abcdef0123456789abcdef";
  return made;
}

TEST_CASE("a packed file holds the bytes of pack_on_cpu, at a page, with all that tells what they are") {
  const test::TempDir folder;
  const std::string path = (folder / "two.safetensors").string();
  const Layer a = made_layer(small_problem(64, 48, 3, kNvfp4), "model.layers.0.mlp.experts.");
  const Layer b = made_layer(small_problem(96, 64, 2, kMxfp4, Activation::swiglu_oai), "model.layers.1.mlp.experts.");
  std::vector<i64> done;
  PackOptions options;
  options.threads = 3;
  options.on_expert_done = [&](i64 expert) { done.push_back(expert); };
  REQUIRE(write_packed(path, std::vector{a.layer, b.layer}, options));
  CHECK(done == std::vector<i64>{0, 1, 2, 3, 4});

  const Result<PackedFile> file = PackedFile::open(path);
  REQUIRE(file);
  REQUIRE(file->layers().size() == 2);
  const Layer* const expected[] = {&a, &b};
  for (std::size_t i = 0; i < 2; ++i) {
    const PackedLayer& packed = file->layers()[i];
    const CheckpointLayer& layer = expected[i]->layer;
    CHECK(is_packed_form_of(packed, layer));
    CHECK(packed.family == "modelopt");
    CHECK(packed.problem.params.limit == layer.problem.params.limit);
    const std::vector<std::byte> in_memory = test::packed(layer.problem, layer.source);
    CHECK(std::equal(packed.bytes.begin(), packed.bytes.end(), in_memory.begin(), in_memory.end()));
    CHECK(verify_prepared(layer.problem, layer.source, packed.bytes));
  }
  CHECK(reinterpret_cast<std::uintptr_t>(file->layers()[0].bytes.data()) % 4096 == 0);
  CHECK(!test::fs::exists(path + ".partial"));
}

TEST_CASE("another shard, another source or another layout is no packed form of a layer") {
  const Layer a = made_layer(small_problem(64, 48, 2, kNvfp4), "layers.0.experts.");
  const Result<PackedLayer> packed = parse_packed_entry(a.layer.prefix, packed_entry(a.layer));
  REQUIRE(packed);
  CHECK(is_packed_form_of(*packed, a.layer));
  const auto differs = [&](const auto& change) {
    CheckpointLayer other = a.layer;
    change(other);
    return !is_packed_form_of(*packed, other);
  };
  CHECK(differs([](CheckpointLayer& l) { l.fingerprint[0] = 'f'; }));
  CHECK(differs([](CheckpointLayer& l) { l.shard.tp.size = 2; }));
  CHECK(differs([](CheckpointLayer& l) { l.shard.ep = {1, 2}; }));
  CHECK(differs([](CheckpointLayer& l) { l.problem.activation = Activation::geglu_erf; }));
  CHECK(differs([](CheckpointLayer& l) { l.prefix = "layers.1.experts."; }));
  CHECK(differs([](CheckpointLayer& l) { l.problem.format.wide_exponent = true; }));
}

TEST_CASE("a failed or cancelled packing leaves no file, and what a killed process left is used again") {
  const test::TempDir folder;
  const std::string path = (folder / "a.safetensors").string();
  const Layer a = made_layer(small_problem(64, 48, 4, kNvfp4), "layers.0.experts.");
  PackOptions options;
  options.cancelled = [] { return true; };
  CHECK(has(write_packed(path, std::span(&a.layer, 1), options).error().message, {"layers.0.experts.", "cancelled"}));
  Layer bad = made_layer(small_problem(64, 48, 4, kNvfp4), "layers.0.experts.");
  for (std::vector<std::byte>& bytes : bad.memory.storage) std::fill(bytes.begin(), bytes.end(), std::byte{0x7f});
  for (const int threads : {1, 4}) {
    PackOptions threaded;
    threaded.threads = threads;
    CHECK(has(write_packed(path, std::span(&bad.layer, 1), threaded).error().message, {"expert 0, gate", "not a finite number"}));
  }
  CHECK(test::fs::is_empty(folder.path()));
  test::write_text(path + ".partial", std::string(1 << 20, 'x'));
  REQUIRE(write_packed(path, std::span(&a.layer, 1)));
  CHECK(PackedFile::open(path));
  CHECK(!test::fs::exists(path + ".partial"));
}

TEST_CASE("packed files of another form, layout or size are refused") {
  const test::TempDir folder;
  const std::string path = (folder / "a.safetensors").string();
  const Layer a = made_layer(small_problem(64, 48, 2, kNvfp4), "layers.0.experts.");
  REQUIRE(write_packed(path, std::span(&a.layer, 1)));
  const std::string good = test::read_text(path);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    if (at == std::string::npos) throw std::runtime_error("no " + from);
    test::write_text(path, text.replace(at, from.size(), to));
    const Result<PackedFile> file = PackedFile::open(path);
    return file ? std::string{} : file.error().message;
  };
  CHECK(has(refused("\"w4moe.packed\":\"1\"", "\"w4moe.packed\":\"2\""), {"packed form 2", "accepted: 1"}));
  CHECK(has(refused("\"w4moe.packed\"", "\"w4moe.pucked\""), {"is no packed file"}));
  CHECK(has(refused("\\\"hidden\\\":64", "\\\"hidden\\\":80"), {"layers.0.experts.", "layout"}));
  CHECK(has(refused("\\\"first_expert\\\":0", "\\\"first_expert\\\":1"), {"do not lie in 2"}));
  CHECK(has(refused("nvfp4", "nvfp5"), {"format"}));
  CHECK(has(refused("W4W4MOE1", "W4W4MOE2"), {"layers.0.experts.", "prepared weights begin with"}));
  test::write_text(path, good.substr(0, good.size() - 1));
  CHECK(!PackedFile::open(path));

  std::mt19937 rng(3);
  const std::string entry = packed_entry(a.layer);
  const std::vector<std::string> words{"null", "-1", "9223372036854775807", "1e99", "\"x\"", "{}", "[[[[[[", "true", "\xff"};
  for (int i = 0; i < 3000; ++i) (void)parse_packed_entry("p.experts.", test::mutate(entry, rng, words));
}

}  // namespace
}  // namespace w4moe
