// The manifest reader: each odd input is either handled or one error that says where and what would be accepted.
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "generator/manifest/json_source.hpp"
#include "generator/manifest/manifest.hpp"
#include "generator/manifest/presets.hpp"
#include "tests/support/catch.hpp"

namespace w4moe {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.good());
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string error_of(const std::string& text) {
  const Result<Manifest> m = parse_manifest(text, "m.json");
  return m ? "accepted" : m.error().message;
}

const std::string kEntry =
    R"({"hidden": 512, "intermediate": 256, "experts": 8, "topk": 2, "max_tokens": 64, "format": "mxfp4", "activation": "silu"})";

std::string manifest_of(const std::string& problems) { return R"({"schema_version": 1, "problems": [)" + problems + "]}"; }

bool same(const Problem& a, const Problem& b) {
  return a.name == b.name && a.shape == b.shape && a.format == b.format && a.activation == b.activation && a.dtype == b.dtype &&
         a.params.alpha == b.params.alpha && a.params.beta == b.params.beta && a.params.has_limit == b.params.has_limit &&
         (a.params.has_limit == 0 || a.params.limit == b.params.limit) && a.has_bias == b.has_bias &&
         a.weight_on_input == b.weight_on_input && a.compact_tail == b.compact_tail;
}

}  // namespace

TEST_CASE("O14: every case of the corpus is accepted, or is the one error it should be") {
  const nlohmann::json cases = nlohmann::json::parse(read_file(std::string(W4MOE_MANIFEST_DIR) + "/corpus.json"));
  REQUIRE(cases.size() > 50);
  for (const auto& c : cases) {
    const std::string message = error_of(c["manifest"].dump());
    INFO(c["name"] << ": " << message);
    if (c.contains("error")) {
      CHECK(message.rfind("m.json:1: " + c["error"].get<std::string>(), 0) == 0);
    } else {
      CHECK(message == "accepted");
    }
  }
}

TEST_CASE("manifest: the fields arrive where they belong") {
  const std::string text = manifest_of(
      R"({"name": "n", "hidden": 1024, "intermediate": 312, "experts": 9, "topk": 3, "max_tokens": 5, "format": "mxfp4",
          "activation": "swiglu-oai", "alpha": 1.5, "beta": 0.5, "limit": 10, "dtype": "f16", "bias": true,
          "weight_on_input": true, "compact_tail": true, "pins": ["n16"], "scratch_cap_bytes": 123456},
         {"model": "gpt-oss-120b", "tp": 2, "ep": 4, "max_tokens": 7})");
  const Result<Manifest> m = parse_manifest(text, "m.json");
  REQUIRE(m.ok());
  REQUIRE(m->entries.size() == 2);
  const ManifestEntry& a = m->entries[0];
  CHECK(a.where == "/problems/0");
  CHECK(a.problem.name == "n");
  CHECK(a.problem.shape == Shape{1024, 312, 9, 3, 5});
  CHECK(a.problem.params.alpha == 1.5f);
  CHECK(a.problem.params.beta == 0.5f);
  CHECK(a.problem.params.limit == 10.0f);
  CHECK(a.problem.params.has_limit == 1);
  CHECK(a.problem.dtype == DType::f16);
  CHECK(a.problem.has_bias);
  CHECK(a.problem.weight_on_input);
  CHECK(a.problem.compact_tail);
  CHECK(a.options.pins == std::vector<std::string>{"n16"});
  CHECK(a.options.scratch_cap_bytes == 123456);
  const ManifestEntry& b = m->entries[1];
  CHECK(b.where == "/problems/1");
  CHECK(b.problem.name == "gpt-oss-120b.tp2.ep4");
  CHECK(b.problem.shape == Shape{2880, 1440, 32, 4, 7});
  CHECK(b.problem.params.limit == 7.0f);
  CHECK(b.problem.has_bias);
}

TEST_CASE("N16: parameters that are not given are the activation's own; null turns the limit off") {
  const auto params = [](const std::string& fields) {
    return parse_manifest(manifest_of(R"({"hidden": 512, "intermediate": 256, "experts": 8, "topk": 2, "max_tokens": 64, "format": "mxfp4", )" +
                                      fields + "}"),
                          "m.json")
        ->entries[0]
        .problem.params;
  };
  CHECK(params(R"("activation": "swiglu-oai")").limit == 7.0f);
  CHECK(params(R"("activation": "swiglu-oai")").alpha == 1.702f);
  CHECK(params(R"("activation": "swiglu-oai", "limit": null)").has_limit == 0);
  CHECK(params(R"("activation": "silu")").has_limit == 0);
  CHECK(params(R"("activation": "silu", "limit": 10)").limit == 10.0f);
}

TEST_CASE("O14: malformed text is one error with file and line") {
  struct Row {
    std::string text;
    std::string error;
  };
  const Row rows[] = {
      {"", "m.json:1: "},
      {"{", "m.json:1: "},
      {"{\n\"schema_version\": 1,\n\"problems\": [\n" + kEntry + ",\n]}", "m.json:5: "},        // trailing comma
      {"{\n\"schema_version\": NaN}", "m.json:2: "},
      {"{\r\n\"schema_version\": 1,\r\n\"problems\": [oops]}", "m.json:3: "},                  // CRLF counts as one line
      {"{\"schema_version\": 1, // comment\n}", "m.json:1: "},
      {"{\"schema_version\": 1} x", "m.json:1: "},
      {"{\"schema_version\": 1e999}", "m.json:1: "},
      {std::string("{\"a\0\": 1}", 9), "m.json:1: "},
      {"{\"a\xff\": 1}", "m.json:1: "},
      {"{\n\n\"schema_version\": 1, \"schema_version\": 1}", "m.json:3: /schema_version: given twice"},
      {manifest_of("{\"hidden\": 1,\n\"hidden\": 1}"), "m.json:2: /problems/0/hidden: given twice"},
      {manifest_of(kEntry + ",\n" + kEntry + ",\n{\"x-a\": [{}, {\"b\": 1, \"b\": 2}]}"), "m.json:3: /problems/2/x-a/1/b: given twice"},
  };
  for (const Row& row : rows) {
    const std::string message = error_of(row.text);
    INFO(row.text << " -> " << message);
    CHECK(message.rfind(row.error, 0) == 0);
    CHECK(message.find("json.exception") == std::string::npos);
    CHECK(message.size() > row.error.size() - 1);
  }
}

TEST_CASE("O14: a byte order mark and CRLF line ends are fine") {
  CHECK(error_of("\xef\xbb\xbf" + manifest_of(kEntry)) == "accepted");
  CHECK(error_of("{\r\n\"schema_version\": 1,\r\n\"problems\": [\r\n" + kEntry + "\r\n]\r\n}\r\n") == "accepted");
}

TEST_CASE("O14: a whole number written as a float is not an integer") {
  CHECK(error_of(R"({"schema_version": 1.0, "problems": []})") == "m.json:1: /schema_version: must be an integer, not 1.0");
}

TEST_CASE("O14: an error in a value names its line") {
  const std::string text = "{\n  \"schema_version\": 1,\n  \"problems\": [\n    " + kEntry + ",\n    {\n      \"model\": \"gpt-oss-120b\",\n" +
                           "      \"max_tokens\": 64,\n      \"tp\": \"2\"\n    }\n  ]\n}\n";
  CHECK(error_of(text) == "m.json:8: /problems/1/tp: must be an integer, not \"2\"");
  CHECK(line_of(text, "/problems/1") == 5);
  CHECK(line_of(text, "/problems/1/max_tokens") == 7);
  CHECK(line_of(text, "/problems") == 3);
  CHECK(line_of(text, "/problems/9") == 0);
  CHECK(line_of("{", "/a") == 0);
  CHECK(pointer_to("", "a/b~c") == "/a~1b~0c");
}

TEST_CASE("O14: deep nesting is refused at a stated depth, not by the stack") {
  for (const std::size_t depth : {std::size_t{17}, std::size_t{1000}, std::size_t{1000000}}) {
    CHECK(error_of(std::string(depth, '[')) == "m.json:1: nested deeper than 16");
    CHECK(error_of(R"({"x-a": )" + std::string(depth, '[') + std::string(depth, ']') + "}") == "m.json:1: nested deeper than 16");
  }
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  CHECK(error_of(objects) == "m.json:1: nested deeper than 16");
}

TEST_CASE("O14: a hundred thousand entries are read in order") {
  std::string problems;
  for (int i = 0; i < 100000; ++i) {
    problems += (i == 0 ? "" : ",\n") + std::string(R"({"name": "p)") + std::to_string(i) + R"(", )" + kEntry.substr(1);
  }
  const Result<Manifest> m = parse_manifest(manifest_of(problems), "m.json");
  REQUIRE(m.ok());
  REQUIRE(m->entries.size() == 100000);
  CHECK(m->entries[99999].where == "/problems/99999");
  CHECK(m->entries[99999].problem.name == "p99999");
  CHECK(error_of(manifest_of(problems + ",\n{}")) == "m.json:100001: /problems/100000: field hidden is missing");
}

TEST_CASE("N03 N04: a shape that no kernel serves is refused as unsupported, malformed input as invalid") {
  const auto code = [](const std::string& text) { return parse_manifest(text, "m.json").error().code; };
  std::string ragged = kEntry;
  ragged.replace(ragged.find("256"), 3, "80");
  CHECK(code(manifest_of(ragged)) == ErrorCode::unsupported);
  CHECK(code(manifest_of("{}")) == ErrorCode::invalid_argument);
  CHECK(code("{") == ErrorCode::invalid_argument);
}

TEST_CASE("manifest: an entry written for a problem reads back as that problem") {
  std::vector<Problem> problems;
  for (const PresetInfo& info : presets()) problems.push_back(info.problem);
  Problem odd = problems.front();
  odd.name = "quote \" and \\ and \n";
  odd.activation = Activation::swiglu_oai;
  odd.params = ActivationParams{1.1f, -0.3f, 0.1f, 1};
  odd.dtype = DType::f16;
  odd.weight_on_input = true;
  odd.format = *parse_format("int4:g128:zp:f16");
  odd.shape.max_tokens = kMaxTokens;
  problems.push_back(odd);
  odd.params.has_limit = 0;
  odd.format = kMxfp4;
  odd.shape.intermediate = 312;
  odd.compact_tail = true;
  odd.has_bias = true;
  problems.push_back(odd);
  for (const Problem& p : problems) {
    const PlanOptions options{{"n16", "no-tail"}, 1 << 20};
    const std::string text = manifest_of(manifest_entry(p, options));
    INFO(text);
    const Result<Manifest> m = parse_manifest(text, "m.json");
    REQUIRE(m.ok());
    CHECK(same(m->entries[0].problem, p));
    CHECK(m->entries[0].options.pins == options.pins);
    CHECK(m->entries[0].options.scratch_cap_bytes == options.scratch_cap_bytes);
  }
}

TEST_CASE("manifest: the published examples parse, and the schema knows every pin, model and activation") {
  const std::string root = W4MOE_SOURCE_DIR;
  for (const char* name : {"quickstart.json", "models.json"}) {
    const Result<Manifest> m = parse_manifest(read_file(root + "/docs/examples/" + name), name);
    if (!m) FAIL(m.error().message);
    for (const ManifestEntry& e : m->entries) {
      const Result<Plan> plan = make_plan(e.problem, named_device(Arch::sm_90a), e.options);
      if (!plan) FAIL(plan.error().message);
    }
  }
  const nlohmann::json schema = nlohmann::json::parse(read_file(root + "/generator/manifest/schema.json"));
  const auto& model = schema["$defs"]["model_problem"]["properties"];
  const auto& sizes = schema["$defs"]["explicit_problem"]["properties"];
  std::vector<std::string> models;
  for (const PresetInfo& info : presets()) models.push_back(info.name);
  CHECK(model["model"]["enum"].get<std::vector<std::string>>() == models);
  CHECK(model["pins"]["items"]["enum"].get<std::vector<std::string>>() == known_pins());
  CHECK(sizes["activation"]["enum"].size() == kActivationCount);
  for (const auto& a : sizes["activation"]["enum"]) CHECK(parse_activation(a.get<std::string>()).ok());
  CHECK(sizes["hidden"]["maximum"] == kMaxHidden);
  CHECK(sizes["intermediate"]["maximum"] == kMaxIntermediate);
  CHECK(sizes["experts"]["maximum"] == kMaxExperts);
  CHECK(sizes["topk"]["maximum"] == kMaxTopk);
  CHECK(sizes["max_tokens"]["maximum"] == kMaxTokens);
}

}  // namespace w4moe
