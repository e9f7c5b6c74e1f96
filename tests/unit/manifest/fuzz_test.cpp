// Damaged manifests: whatever comes in, the answer is a manifest whose problems plan or are refused with words, never a crash.
#include <random>
#include <string>
#include <vector>

#include "generator/manifest/manifest.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/mutate.hpp"

namespace w4moe {

TEST_CASE("O14: thirty thousand damaged manifests end in a value or in one error") {
  const std::vector<std::string> seeds = {
      R"({"schema_version": 1, "problems": [{"model": "gpt-oss-120b", "tp": 2, "ep": 4, "max_tokens": 64, "pins": ["n16"]}]})",
      R"({"schema_version": 1, "x-a": [1, 2], "problems": [{"name": "mine", "hidden": 512, "intermediate": 256, "experts": 8,
          "topk": 2, "max_tokens": 64, "format": "mxfp4", "activation": "swiglu-oai", "alpha": 1.5, "beta": 1, "limit": null,
          "dtype": "f16", "bias": true, "weight_on_input": false, "compact_tail": true, "scratch_cap_bytes": 1000000}]})"};
  const std::vector<std::string> words = {"NaN", "-1", "0", "1e999", "1e30", "9223372036854775808", "2.5", "null", "true", "\"\"", "[]",
                                          "{}", "[[[[", "\"x-\": 1,", "\"hidden\": 1,", "\xef\xbb\xbf", "\r\n", "\\u0000", "\xff",
                                          "16777216", "262144", "\"int4:row:zp\"", "\"nvfp4\"", "\"relu2\"", "4294967296"};
  std::mt19937 rng(20260731);
  int accepted = 0, refused = 0, planned = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::string text = test::mutate(seeds[static_cast<std::size_t>(i) % seeds.size()], rng, words);
    const Result<Manifest> m = parse_manifest(text, "f.json");
    if (!m) {
      ++refused;
      INFO(text);
      REQUIRE(m.error().message.rfind("f.json:", 0) == 0);
      REQUIRE(m.error().message.size() < 1000);
      continue;
    }
    ++accepted;
    for (const ManifestEntry& e : m->entries) {
      INFO(text);
      REQUIRE(validate(e.problem).ok());
      const Result<Plan> plan = make_plan(e.problem, named_device(Arch::sm_90a), e.options);
      if (plan) {
        ++planned;
        REQUIRE(plan->required_bytes() >= kControlBytes);
      } else {
        REQUIRE_FALSE(plan.error().message.empty());
      }
    }
  }
  CHECK(accepted > 200);  // the damage is not so heavy that only the parser's first line is tried
  CHECK(refused > 10000);
  CHECK(planned > 200);
}

}  // namespace w4moe
