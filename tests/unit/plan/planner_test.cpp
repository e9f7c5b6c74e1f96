// make_plan(): buckets, tiles, pins, refusals.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "contract/route_layout.h"
#include "generator/plan/explain.hpp"
#include "generator/plan/rules.hpp"
#include "tests/support/catch.hpp"
#include "tests/unit/plan/shapes.hpp"

namespace w4moe {
namespace {

const DeviceSpec kHopper = named_device(Arch::sm_90a);

Plan plan_of(const Problem& p, const PlanOptions& options = {}, const DeviceSpec& device = kHopper) {
  Result<Plan> plan = make_plan(p, device, options);
  if (!plan) FAIL(plan.error().message);
  return *plan;
}

std::string refusal(const Problem& p, const PlanOptions& options = {}, const DeviceSpec& device = kHopper) {
  const Result<Plan> plan = make_plan(p, device, options);
  return plan ? "accepted" : plan.error().message;
}

}  // namespace

TEST_CASE("O09: a thousand plans of one problem are one plan") {
  const Problem p = seed_case(4096);
  const std::string first = plan_json(plan_of(p)) + explain(plan_of(p));
  for (int i = 0; i < 1000; ++i) REQUIRE(plan_json(plan_of(p)) + explain(plan_of(p)) == first);
}

TEST_CASE("plan: every m has exactly one bucket, in order and without gaps") {
  for (const i64 experts : {1, 2, 7, 128, 160}) {
    for (const i64 topk : {1, 4, 8, 32}) {
      for (const i64 max_tokens : {1, 2, 3, 31, 64, 300, 2500}) {
        for (const bool portable : {false, true}) {
          const Plan plan = plan_of(problem_of(512, 256, experts, topk, max_tokens),
                                    {portable ? std::vector<std::string>{"portable"} : std::vector<std::string>{}, 0});
          i64 next = 1;
          int rows = 0;
          for (const Bucket& b : plan.buckets) {
            REQUIRE(b.first_tokens == next);
            REQUIRE(b.last_tokens >= b.first_tokens);
            if (portable) REQUIRE(b.block_rows >= rows);  // wider blocks for more routes
            rows = b.block_rows;
            REQUIRE(b.parallel_route == (b.first_tokens * topk >= kParallelRoutePairs));
            REQUIRE(b.parallel_route == (b.last_tokens * topk >= kParallelRoutePairs));
            next = b.last_tokens + 1;
          }
          REQUIRE(next == max_tokens + 1);
          for (i64 m = 1; m <= max_tokens; ++m) {
            const Bucket& b = plan.bucket_for(m);
            REQUIRE(b.first_tokens <= m);
            REQUIRE(b.last_tokens >= m);
          }
        }
      }
    }
  }
}

TEST_CASE("plan: the bucket follows the average routes per touched expert") {
  for (const i64 experts : {1, 5, 16, 160}) {
    for (const i64 topk : {1, 3, 8}) {
      const Plan plan = plan_of(problem_of(512, 256, experts, topk, 1200), {{"portable"}, 0});
      for (i64 m = 1; m <= 1200; ++m) {
        const i64 routes = m * topk;
        const double average = static_cast<double>(routes) / static_cast<double>(std::min(routes, experts));
        const int expected = average <= 4 ? 8 : average <= 14 ? 16 : average <= 40 ? 32 : 64;
        if (!plan.bucket_for(m).direct) REQUIRE(plan.bucket_for(m).block_rows == expected);
      }
    }
  }
}

TEST_CASE("plan: kernels of a bucket are those of its block width, and each is planned once") {
  const Plan plan = plan_of(problem_of(2880, 2880, 128, 4, 8192, "mxfp4", Activation::swiglu_oai));
  CHECK(plan.buckets.front().direct);
  std::set<int> used;
  for (const Bucket& b : plan.buckets) {
    for (const int index : plan.launched_by(b)) used.insert(index);
  }
  CHECK(plan.kernels.size() == used.size());  // nothing is planned that no bucket runs
  std::set<std::string> names;
  for (const PlannedKernel& k : plan.kernels) CHECK(names.insert(k.name).second);
  for (const Bucket& b : plan.buckets) {
    for (const int index : {b.fc1, b.fc2}) {
      REQUIRE(index >= 0);
      CHECK(plan.kernels[index].variant.block_rows() == b.block_rows);
    }
    const KernelKind first = plan.kernels[b.fc1].variant.kind;
    CHECK((first == KernelKind::fc1 || (b.direct && first == KernelKind::fc1_direct)));
    CHECK(plan.kernels[b.fc2].variant.kind == (b.direct ? KernelKind::fc2_direct : KernelKind::fc2));
    CHECK(plan.launched_by(b).size() == (b.direct ? 2u : b.self_routed ? 3u : b.parallel_route ? 5u : 4u));
  }
  CHECK(plan.kernels[plan.route].variant.kind == KernelKind::route);
  CHECK(plan.kernels[plan.combine].variant.kind == KernelKind::combine);
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(plan.kernels[i].variant == plan.kernels[j].variant);
  }
}

TEST_CASE("O03: kernels depend on nothing that is a run-time argument") {
  const auto variants = [](Problem p) {
    std::vector<Variant> v;
    for (const PlannedKernel& k : plan_of(p).kernels) v.push_back(k.variant);
    return v;
  };
  const Problem base = problem_of(2048, 768, 128, 8, 64, "nvfp4");
  Problem p = base;
  p.has_bias = true;
  p.weight_on_input = true;
  p.params.has_limit = 1;
  p.params.limit = 7;
  p.shape.experts = 130;
  CHECK(variants(p) == variants(base));
  // FC2 computes no activation, so it is shared by all gated ones; route and combine are shared by all layers of a dtype.
  p = base;
  p.activation = Activation::geglu_erf;
  p.shape.intermediate = 1024;
  const std::vector<Variant> a = variants(base), b = variants(p);
  REQUIRE(a.size() == b.size());
  CHECK(a.front() == b.front());
  CHECK(a.back() == b.back());
  p.shape.intermediate = base.shape.intermediate;
  const std::vector<Variant> c = variants(p);
  REQUIRE(a.size() == c.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK((a[i] == c[i]) == (a[i].kind != KernelKind::fc1));
}

TEST_CASE("plan: kernels compile in the layout that the weights have") {
  for (const Activation activation : {Activation::silu, Activation::geglu_tanh, Activation::relu2, Activation::gelu_ungated}) {
    const Plan plan = plan_of(problem_of(512, 256, 8, 2, 64, "mxfp4", activation));
    for (const PlannedKernel& k : plan.kernels) {
      if (k.variant.kind != KernelKind::fc1 && k.variant.kind != KernelKind::fc2) continue;
      CHECK(kernel_layout_id(k.variant.weights()) == kernel_layout_id(plan.weights));
    }
  }
}

TEST_CASE("R12: every planned kernel fits its device, for wide layers and small shared memory alike") {
  for (const Arch arch : known_archs()) {
    const DeviceSpec d = named_device(arch);
    for (const i64 intermediate : {64, 512, 1024, 2048}) {
      for (const char* format : {"mxfp4", "nvfp4", "int4:g32:zp"}) {
        const Plan plan = plan_of(problem_of(3072, intermediate, 256, 8, 16384, format), {}, d);
        for (const PlannedKernel& k : plan.kernels) {
          const GemmTile& t = k.variant.tile;
          REQUIRE(k.variant.shared_bytes() <= d.shared_optin_bytes);
          if ((k.variant.kind != KernelKind::fc1 && k.variant.kind != KernelKind::fc2) || k.variant.is_wgmma()) continue;
          REQUIRE(t.min_ctas_per_sm * (t.shared_bytes() + kReservedSharedBytesPerCta) <= d.shared_per_sm_bytes);
          REQUIRE(t.min_ctas_per_sm * t.threads() <= d.max_threads_per_sm);
          REQUIRE(t.stages >= kMinStages);
          REQUIRE(t.tile_strips() <= k.variant.matrix().strips());
        }
      }
    }
  }
}

TEST_CASE("R12: a device with less shared memory gets fewer stages, units, rows, and the reason says so") {
  DeviceSpec d = kHopper;
  d.name = "small";
  const Problem p = problem_of(2048, 1024, 16, 8, 1024);
  std::set<std::string> narrowed;
  for (const i64 kib : {160, 99, 64, 48, 40, 32}) {
    d.shared_optin_bytes = kib * 1024;
    d.shared_per_sm_bytes = d.shared_optin_bytes + 1024;
    const Result<Plan> plan = make_plan(p, d);
    if (!plan) {
      CHECK(plan.error().code == ErrorCode::unsupported);
      CHECK(plan.error().message.find("bytes of shared memory per CTA do not hold a tile of") != std::string::npos);
      continue;
    }
    for (const PlannedKernel& k : plan->kernels) {
      REQUIRE(k.variant.shared_bytes() <= d.shared_optin_bytes);
      for (const char* what : {"; stages ", "; units per warp ", "; tile rows "}) {
        if (k.reason.find(what) != std::string::npos && k.reason.find("to fit") != std::string::npos) narrowed.insert(what);
      }
    }
  }
  CHECK(narrowed.size() == 3);
  d.shared_optin_bytes = 4096;
  CHECK(refusal(p, {}, d).find("device small: 4096 bytes of shared memory per CTA do not hold a tile of") == 0);
}

TEST_CASE("plan: the wgmma family takes over where experts have more than a few routes") {
  const Plan plan = plan_of(problem_of(2880, 2880, 32, 4, 8192, "mxfp4"));
  const auto name = [&](i64 m) { return plan.kernels[plan.bucket_for(m).fc1].name; };
  for (const auto& [average, kernel] : {std::pair<i64, const char*>{3, "fc1.w16"}, {8, "fc1.w16"}, {9, "fc1.w24"}, {17, "fc1.w24"}, {18, "fc1.w48"},
                                        {39, "fc1.w96"}, {86, "fc1.w128"}, {128, "fc1.w144"}, {160, "fc1.w96"}, {192, "fc1.w128"}, {256, "fc1.w144"},
                                        {384, "fc1.w144"}, {450, "fc1.w128"}, {1000, "fc1.w144"}}) {
    INFO(average);
    CHECK(name(average * 8) == kernel);  // top-k 4 over 32 experts
  }
  for (const TileRule& rule : kWgmmaRules) {
    const auto has = [&](const auto& c) { return c.pin == rule.pin; };
    CHECK((rule.family == Family::wgmma) == std::any_of(kWgmmaTiles.begin(), kWgmmaTiles.end(), has));
  }
  for (const PlannedKernel& k : plan.kernels) {
    if (!k.variant.is_wgmma()) continue;
    CHECK(k.variant.shared_bytes() <= kHopper.shared_optin_bytes);
    CHECK(k.variant.wgmma.stages >= kMinWgmmaStages);
  }
}

TEST_CASE("plan: the wgmma family is left out where it cannot serve, and the notes say why") {
  const auto notes = [](const Problem& p, const DeviceSpec& d = kHopper) {
    const Plan plan = plan_of(p, {}, d);
    for (const PlannedKernel& k : plan.kernels) CHECK_FALSE(k.variant.is_wgmma());
    return plan.notes.front();
  };
  const Problem p = problem_of(2048, 1024, 16, 8, 1024);
  CHECK(notes(p, named_device(Arch::sm_80)) == "family wgmma does not serve this: it needs sm_90a, not sm_80");
  CHECK(notes(p, named_device(Arch::sm_100a)) == "family wgmma does not serve this: it needs sm_90a, not sm_100a");
  Problem half = p;
  half.dtype = DType::f16;
  CHECK(notes(half).find("it needs bf16 and scales that go on the weight, not f16") != std::string::npos);
  CHECK(notes(problem_of(2048, 1024, 16, 8, 1024, "int4:g32")).find("not bf16 with int4:g32") != std::string::npos);
  CHECK(notes(problem_of(2048, 1024, 16, 8, kMaxTokens)) == "family wgmma does not serve this: it gathers from 64 GiB at most, less than 16777216 tokens can take");
  CHECK(notes(problem_of(128, 1024, 16, 8, 1024)).find("its tiles are 256 rows high, a matrix has 128") != std::string::npos);
  CHECK(refusal(p, {{"wgmma"}, 0}, named_device(Arch::sm_89)) == "pins wgmma: the wgmma family does not serve this: it needs sm_90a, not sm_89");
  CHECK(refusal(half, {{"w48"}, 0}).find("pins w48: the wgmma family does not serve this: it needs bf16") == 0);
  CHECK(refusal(p, {{"wgmma"}, 0}) == "accepted");
  for (const PlannedKernel& k : plan_of(p, {{"wgmma"}, 0}).kernels) CHECK(k.variant.is_wgmma() == (k.variant.kind == KernelKind::fc1 || k.variant.kind == KernelKind::fc2));
}

TEST_CASE("plan: a tile is not taller than its matrix") {
  const Plan plan = plan_of(problem_of(64, 32, 4, 2, 512));
  for (const PlannedKernel& k : plan.kernels) {
    if (k.variant.kind != KernelKind::fc1 && k.variant.kind != KernelKind::fc2) continue;
    CHECK(k.variant.tile.tile_strips() <= k.variant.matrix().strips());
  }
  const Plan flat = plan_of(problem_of(32, 32, 4, 2, 512));
  const auto narrow = [](const PlannedKernel& k) {
    return k.name == "fc2.n16" && k.reason.find("tile rows 128 -> 32, the matrix has 2 strips") != std::string::npos;
  };
  CHECK(std::any_of(flat.kernels.begin(), flat.kernels.end(), narrow));
}

TEST_CASE("O04: reasons name a tail, and the pin no-tail turns it into an error") {
  const auto reasons = [](const Plan& plan) {
    std::string all;
    for (const PlannedKernel& k : plan.kernels) all += k.reason + "\n";
    for (const std::string& note : plan.notes) all += note + "\n";
    return all;
  };
  const Problem ragged = problem_of(4096, 176, 16, 8, 32, "nvfp4", Activation::relu2);
  CHECK(reasons(plan_of(ragged)).find("K tail: 176 columns leave 48 of 64 in the last unit") != std::string::npos);
  CHECK(reasons(plan_of(ragged)).find("row tail: 176 rows leave 16 of 32 in the last tile") != std::string::npos);
  CHECK(refusal(ragged, {{"no-tail"}, 0}).find("pin 'no-tail': fc1.") == 0);
  CHECK(refusal(ragged, {{"no-tail"}, 0}).find(": row tail: 176 rows leave ") != std::string::npos);
  const Problem whole = problem_of(4096, 256, 16, 8, 32, "nvfp4");
  CHECK(reasons(plan_of(whole)).find("tail") == std::string::npos);
  CHECK(refusal(whole, {{"no-tail"}, 0}) == "accepted");
}

TEST_CASE("plan: notes state the padding of each projection in bytes and percent") {
  const Plan whole = plan_of(problem_of(4096, 256, 16, 8, 32, "nvfp4"));
  CHECK(whole.notes[0] == "fc1 weights: 18874368 bytes packed, 0 of them padding (0.00 % over the checkpoint's 18874368)");
  const Plan ragged = plan_of(problem_of(4096, 80, 512, 10, 33, "nvfp4"));
  // FC2: K 80 is stored as two units of 64.
  CHECK(ragged.notes[2] == "fc2 weights: 150994944 bytes packed, 56623104 of them padding (60.00 % over the checkpoint's 94371840)");
  const Plan repeated = plan_of(problem_of(4096, 256, 16, 8, 32, "int4:g128"));
  CHECK(repeated.notes[1].find("padding and repeated scales") != std::string::npos);
}

TEST_CASE("plan: pins restrict, unknown and contradicting ones are refused") {
  const Problem p = problem_of(2048, 768, 128, 8, 4096, "nvfp4");
  for (const auto& [pin, rows] : {std::pair<std::string, int>{"n8", 8}, {"n16", 16}, {"n32", 32}, {"n64", 64}}) {
    const Plan plan = plan_of(p, {{pin}, 0});
    for (const Bucket& b : plan.buckets) {
      CHECK(b.block_rows == rows);
      CHECK_FALSE(b.direct);
    }
    CHECK(plan.buckets.back().last_tokens == 4096);
    CHECK(plan.scratch.max_blocks == RouteLayout{4096, 8, 128, rows}.max_blocks());  // a pin re-prices the scratch
    CHECK(plan.buckets[0].reason.find("pinned to " + pin) == 0);
  }
  CHECK(plan_json(plan_of(p, {{"portable"}, 0})) != plan_json(plan_of(p)));  // part of the plan's identity
  CHECK(plan_json(plan_of(p, {{"no-wgmma"}, 0})) != plan_json(plan_of(p, {{"portable"}, 0})));
  CHECK(refusal(p, {{"n12"}, 0}) == "pin 'n12' is unknown (accepted: portable, no-portable, wgmma, no-wgmma, n8, n16, n32, n64, w16, w24, w48, w96, w128, w144, no-direct, "
        "no-tail, batch-invariant)");
  CHECK(refusal(p, {{"no-portable", "no-wgmma"}, 0}) == "pins no-portable, no-wgmma: no kernel family is left (families: portable, wgmma)");
  CHECK(refusal(p, {{"n8", "wgmma"}, 0}) == "pins n8, wgmma: 'n8' is a block width of a family that another pin forbids");
  CHECK(refusal(p, {{"n8", "n16"}, 0}) == "pins 'n8' and 'n16' contradict each other: one block width serves every m");
  CHECK(refusal(p, {{"n8", "n8"}, 0}) == "accepted");
}

TEST_CASE("plan: one token is served directly, unless pinned otherwise or where fp16 needs its scaled rows") {
  const Problem p = problem_of(2880, 2880, 128, 4, 64, "mxfp4");
  CHECK(plan_of(p).buckets.front().direct);
  CHECK(plan_of(p).buckets.front().last_tokens == 1);
  CHECK_FALSE(plan_of(p, {{"no-direct"}, 0}).buckets.front().direct);
  Problem half = p;
  half.dtype = DType::f16;
  CHECK_FALSE(plan_of(half).buckets.front().direct);
  // A plan for one token keeps nothing but h: no route rows.
  Problem one = p;
  one.shape.max_tokens = 1;
  CHECK(plan_of(one).required_bytes() == align_up(kControlBytes + 4 * 2880 * 2, kScratchAlignBytes));
  CHECK(plan_of(one).route == -1);
}

TEST_CASE("plan: few routes need no routing kernel, unless pinned otherwise, fp16, or more than experts") {
  const Problem p = problem_of(2880, 2880, 128, 4, 64, "mxfp4");
  const auto last = [](const Plan& plan) {
    i64 m = 0;
    for (const Bucket& b : plan.buckets) m = b.self_routed ? b.last_tokens : m;
    return m;
  };
  const Plan plan = plan_of(p);
  CHECK(last(plan) == 7);  // then w16 fills the device
  CHECK_FALSE(plan.bucket_for(1).self_routed);
  CHECK(plan.bucket_for(2).self_routed);
  CHECK(plan.launched_by(plan.bucket_for(5)).size() == 3);
  CHECK(plan.launched_by(plan.bucket_for(8)).size() == 4);
  CHECK(plan.bucket_for(5).reason.find("no routing kernel") != std::string::npos);
  const Plan narrow = plan_of(p, {{"portable"}, 0});
  CHECK(last(narrow) == 12);  // 48 routes
  CHECK(narrow.launched_by(narrow.bucket_for(13)).size() == 4);
  CHECK(last(plan_of(problem_of(4096, 14336, 8, 2, 64, "mxfp4"))) == 2);    // four routes of eight experts
  CHECK(last(plan_of(problem_of(2048, 768, 160, 32, 64, "nvfp4"))) == 0);   // two tokens have 64 routes
  CHECK(last(plan_of(p, {{"no-direct"}, 0})) == 0);
  CHECK(last(plan_of(p, {{"n8"}, 0})) == 0);
  CHECK(last(plan_of(p, {{"no-portable"}, 0})) == 0);
  Problem half = p;
  half.dtype = DType::f16;
  CHECK(last(plan_of(half)) == 0);
  Problem few = p;
  few.shape.max_tokens = 7;
  CHECK(plan_of(few).route == -1);  // no bucket launches it
  CHECK(plan_of(few).combine >= 0);
}

TEST_CASE("plan: w16 serves few routes where its tiles come out even on the multiprocessors") {
  const auto served = [](const Problem& p, i64 m) { return plan_of(p).kernels[plan_of(p).bucket_for(m).fc1].name; };
  const Problem dsv4 = problem_of(4096, 2048, 256, 6, 64, "mxfp4");
  CHECK(served(dsv4, 3) == "fc1.n8.few");  // about 18 experts x 16 tiles: 2.2 waves, a third one nearly empty
  CHECK(served(dsv4, 4) == "fc1.w16");     // 23 x 16: 2.8 waves
  const Problem qwen3 = problem_of(2048, 768, 128, 8, 64, "nvfp4");
  CHECK(served(qwen3, 4) == "fc1.n8");     // K of 32 and 12 units: an item's start and end weigh more
  const Problem mixtral = problem_of(4096, 14336, 8, 2, 64, "mxfp4");
  CHECK(served(mixtral, 2) == "fc1.n8.few");
  CHECK(served(mixtral, 4) == "fc1.n8");
  CHECK(served(mixtral, 6) == "fc1.w16");
  for (const Bucket& b : plan_of(dsv4).buckets) CHECK(b.first_tokens <= b.last_tokens);
}

TEST_CASE("plan: few routes take small tiles where splitting K pays") {
  const auto names = [](const Plan& plan, i64 m) {
    return plan.kernels[plan.bucket_for(m).fc1].name + " " + plan.kernels[plan.bucket_for(m).fc2].name;
  };
  CHECK(names(plan_of(problem_of(2880, 2880, 128, 4, 64, "mxfp4")), 2) == "fc1.n8.few fc2.n8.few");
  CHECK(names(plan_of(problem_of(2880, 2880, 128, 4, 64, "mxfp4")), 5) == "fc1.n8.few fc2.n8");
  CHECK(names(plan_of(problem_of(2880, 2880, 128, 4, 64, "mxfp4")), 8) == "fc1.w16 fc2.w16");
  CHECK(names(plan_of(problem_of(2048, 768, 128, 8, 64, "nvfp4")), 2) == "fc1.n8 fc2.n8");        // K of 32 units
  CHECK(names(plan_of(problem_of(6144, 512, 160, 8, 64, "nvfp4")), 2) == "fc1.n8.few fc2.n8.short");  // 96 units, and 8
}

TEST_CASE("plan: few CTAs get the small tile, many the tall one, and the change is where the table says") {
  const Problem p = problem_of(4096, 14336, 8, 2, 64, "mxfp4");  // FC2: 32 row tiles of 128 for at most 8 experts never fill 132 SMs
  const Plan plan = plan_of(p);
  for (const Bucket& b : plan.buckets) {
    if (b.direct || b.block_rows != 8) continue;
    CHECK(plan.kernels[b.fc2].name == "fc2.n8.few");
    CHECK(plan.kernels[b.fc1].name == (b.self_routed ? "fc1.n8.few" : "fc1.n8"));
  }
  const Plan wide = plan_of(problem_of(2880, 2880, 128, 4, 64, "mxfp4"), {{"no-direct"}, 0});
  CHECK(wide.kernels[wide.bucket_for(2).fc1].name == "fc1.n8");      // 45 row tiles x 8 experts = 360 of 330
  CHECK(wide.kernels[wide.bucket_for(3).fc2].name == "fc2.n8.few");  // 23 row tiles x 12 experts = 276 of 330
  CHECK(wide.kernels[wide.bucket_for(4).fc2].name == "fc2.n8");      // 23 x 16 = 368
}

TEST_CASE("N12: max_tokens 0 has a plan without kernels and a defined byte count") {
  const Plan plan = plan_of(seed_case(0));
  CHECK(plan.kernels.empty());
  CHECK(plan.buckets.empty());
  CHECK(plan.route == -1);
  CHECK(plan.combine == -1);
  CHECK(plan.required_bytes() == kControlBytes + kScratchAlignBytes);
  CHECK(plan.required_bytes() < plan_of(seed_case(1)).required_bytes());
  CHECK(plan.bucket_for(1).fc1 == -1);
  CHECK_FALSE(plan_json(plan).empty());
  CHECK_FALSE(explain(plan).empty());
}

TEST_CASE("plan: invalid problems and devices are refused before anything is decided") {
  CHECK(refusal(problem_of(512, 80, 8, 2, 64)) ==
        "intermediate 80: MXFP4 group 32 does not divide 80 (accepted: multiples of 32, or --compact-tail for multiples of 8)");
  const Problem p = seed_case();
  DeviceSpec d = kHopper;
  d.sms = 0;
  CHECK(refusal(p, {}, d) == "device sm_90a: 0 multiprocessors (accepted: 1 and more)");
  d = kHopper;
  d.shared_per_sm_bytes = 1024;
  CHECK(refusal(p, {}, d) == "device sm_90a: shared memory of 232448 bytes per CTA and 1024 per SM contradict each other");
  d = kHopper;
  d.max_threads_per_sm = 0;
  CHECK(refusal(p, {}, d) == "device sm_90a: 0 threads per SM (accepted: 1 and more)");
  CHECK(refusal(p, {}, named_device(static_cast<Arch>(7))).find("arch '7' is unknown") == 0);
}

TEST_CASE("plan: a grid that CUDA cannot launch is refused, not wrapped") {
  const Problem p = problem_of(65536, 262144, 8, 32, kMaxTokens);
  const std::string message = refusal(p, {{"portable"}, 0});
  CHECK(message.find("exceed a grid's 2147483647") != std::string::npos);
  CHECK(refusal(p, {{"portable"}, i64{1} << 40}) == "accepted");  // chunks of tokens keep every launch small
}

}  // namespace w4moe
