// Model presets: facts, divisions over ranks, and that each of them plans.
#include <algorithm>
#include <string>

#include "generator/manifest/presets.hpp"
#include "tests/support/catch.hpp"
#include "w4moe/plan.hpp"

namespace w4moe {

TEST_CASE("presets: the shapes of the benchmarks and of the public configurations") {
  struct Row {
    std::string name;
    i64 hidden, intermediate, experts, topk;
    std::string format, activation;
  };
  const Row rows[] = {
      {"gpt-oss-120b", 2880, 2880, 128, 4, "mxfp4", "swiglu-oai"}, {"dsv4-flash", 4096, 2048, 256, 6, "mxfp4", "silu"},
      {"qwen3-30b-a3b", 2048, 768, 128, 8, "nvfp4", "silu"},       {"seed-case", 6144, 512, 160, 8, "nvfp4", "silu"},
      {"dsv3-tp8", 7168, 256, 256, 8, "nvfp4", "silu"},            {"mixtral-like", 4096, 14336, 8, 2, "mxfp4", "silu"},
      {"gpt-oss-20b", 2880, 2880, 32, 4, "mxfp4", "swiglu-oai"},   {"deepseek-v3", 7168, 2048, 256, 8, "nvfp4", "silu"},
      {"qwen3-235b-a22b", 4096, 1536, 128, 8, "nvfp4", "silu"},    {"glm-4.5", 5120, 1536, 160, 8, "nvfp4", "silu"},
      {"glm-4.5-air", 4096, 1408, 128, 8, "nvfp4", "silu"},        {"kimi-k2", 7168, 2048, 384, 8, "int4:g32", "silu"},
      {"minimax-m2", 3072, 1536, 256, 8, "nvfp4", "silu"},         {"nemotron-3-nano", 2688, 1856, 128, 6, "nvfp4", "relu2"},
      {"mixtral-8x7b", 4096, 14336, 8, 2, "int4:g128:f16", "silu"},
  };
  CHECK(presets().size() == std::size(rows));
  for (const Row& row : rows) {
    const Result<Problem> p = preset(row.name, 1, 1, 64);
    INFO(row.name);
    REQUIRE(p.ok());
    CHECK(p->name == row.name);
    CHECK(p->shape == Shape{row.hidden, row.intermediate, row.experts, row.topk, 64});
    CHECK(to_string(p->format) == row.format);
    CHECK(to_string(p->activation) == row.activation);
    CHECK(p->has_bias == (row.activation == "swiglu-oai"));
  }
  CHECK(preset("dsv4-flash", 1, 1, 1)->params.limit == 10.0f);
  CHECK(preset("gpt-oss-20b", 1, 1, 1)->params.limit == 7.0f);
  CHECK(preset("qwen3-30b-a3b", 1, 1, 1)->params.has_limit == 0);
}

TEST_CASE("presets: sorted, cited, and each one plans on every target") {
  const std::vector<PresetInfo> all = presets();
  CHECK(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const PresetInfo& info : all) {
    CHECK_FALSE(info.config.empty());
    CHECK_FALSE(info.checkpoint_format.empty());
    for (const Arch arch : known_archs()) {
      const Result<Plan> plan = make_plan(*preset(info.name, 1, 1, 8192), named_device(arch));
      if (!plan) FAIL(plan.error().message);
    }
  }
}

TEST_CASE("presets: tensor parallelism divides features, expert parallelism experts") {
  const Result<Problem> p = preset("deepseek-v3", 8, 4, 128);
  REQUIRE(p.ok());
  CHECK(p->shape == Shape{7168, 256, 64, 8, 128});
  CHECK(p->name == "deepseek-v3.tp8.ep4");
  CHECK(preset("dsv3-tp8", 1, 1, 64)->shape == preset("deepseek-v3", 8, 1, 64)->shape);
}

TEST_CASE("presets: ranks that do not divide and unknown names are errors that list what is accepted") {
  CHECK(preset("gpt-oss-120b", 7, 1, 64).error().message ==
        "tp 7 does not divide the 2880 intermediate features of gpt-oss-120b (accepted: 1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, "
        "20, 24, 30, 32, 36, 40, 45, 48, 60, 64, ...)");
  CHECK(preset("mixtral-8x7b", 1, 3, 64).error().message ==
        "ep 3 does not divide the 8 experts of mixtral-8x7b (accepted: 1, 2, 4, 8)");
  for (const int bad : {0, -1}) {
    CHECK_FALSE(preset("mixtral-8x7b", bad, 1, 64).ok());
    CHECK_FALSE(preset("mixtral-8x7b", 1, bad, 64).ok());
  }
  CHECK(preset("gpt-5", 1, 1, 64).error().message.find("model 'gpt-5' is unknown (accepted: deepseek-v3, dsv3-tp8, ") == 0);
  // 720 features per rank split a group of 32: the plan says so, and names the way out.
  const Result<Plan> plan = make_plan(*preset("gpt-oss-120b", 4, 1, 64), named_device(Arch::sm_90a));
  CHECK(plan.error().message ==
        "intermediate 720: MXFP4 group 32 does not divide 720 (accepted: multiples of 32, or --compact-tail for multiples of 8)");
}

}  // namespace w4moe
