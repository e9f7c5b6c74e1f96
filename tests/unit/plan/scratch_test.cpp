// The byte query: monotone, sufficient for every reachable m, 64-bit, below the seed's, below a cap where one is given.
#include <algorithm>
#include <string>

#include "contract/route_layout.h"
#include "tests/support/catch.hpp"
#include "tests/support/seed_planner.hpp"
#include "tests/unit/plan/shapes.hpp"

namespace w4moe {
namespace {

const DeviceSpec kHopper = named_device(Arch::sm_90a);

i64 bytes_of(const Problem& p, const PlanOptions& options = {}) {
  const Result<Plan> plan = make_plan(p, kHopper, options);
  if (!plan) FAIL(plan.error().message);
  return plan->required_bytes();
}

/// The scratch that a run of m tokens in this bucket touches.
ScratchLayout live_scratch(const Plan& plan, i64 m) {
  ScratchLayout live = plan.scratch;
  live.shape.max_tokens = m;
  live.max_blocks = RouteLayout{m, plan.problem.shape.topk, plan.problem.shape.experts, plan.bucket_for(m).block_rows}.max_blocks();
  return live;
}

}  // namespace

TEST_CASE("P2: the seed's case takes 8 MiB or less, where the seed took 94.94 and then 30.03 MiB") {
  const test::SeedCaps caps;
  const i64 seed_old = test::seed_arena_bytes(caps, test::seed_all_blocks());
  const i64 seed_fixed = test::seed_arena_bytes(caps, test::seed_reachable_blocks(caps));
  CHECK(seed_old == 99554116);
  CHECK(seed_fixed == 31491908);
  CHECK(test::seed_arena_bytes(caps, {64}) == 99553972);
  const i64 ours = bytes_of(seed_case());
  CHECK(ours == 6886656);
  CHECK(ours <= 8388608);
  CHECK(ours < seed_fixed / 4);
}

TEST_CASE("P2: less scratch than the seed's planner at every capacity of its tests") {
  for (const i64 tokens : {9, 64, 144, 1024, 3072, 8192}) {
    for (const i64 experts : {8, 160, 256}) {
      test::SeedCaps caps;
      caps.max_tokens = tokens;
      caps.experts = experts;
      const i64 ours = bytes_of(problem_of(caps.hidden, caps.intermediate, experts, caps.topk, tokens, "nvfp4"));
      CHECK(ours < test::seed_arena_bytes(caps, test::seed_reachable_blocks(caps)));
    }
  }
}

TEST_CASE("P1: required bytes grow with max_tokens, over every small shape") {
  for (const i64 experts : {1, 2, 3, 8, 17}) {
    for (const i64 topk : {1, 2, 5, 8}) {
      for (const char* pin : {"", "n8", "n64"}) {
        const PlanOptions options{*pin == 0 ? std::vector<std::string>{} : std::vector<std::string>{pin}, 0};
        i64 before = 0;
        for (i64 m = 0; m <= 200; ++m) {
          const i64 bytes = bytes_of(problem_of(64, 32, experts, topk, m), options);
          REQUIRE(bytes >= before);
          before = bytes;
        }
      }
    }
  }
}

TEST_CASE("S04: what any m needs in its bucket was planned, exhaustively") {
  for (const i64 experts : {1, 2, 8, 60, 160}) {
    for (const i64 topk : {1, 4, 8}) {
      const Plan plan = *make_plan(problem_of(512, 256, experts, topk, 700), kHopper);
      i64 most_blocks = 0;
      for (i64 m = 1; m <= 700; ++m) {
        const ScratchLayout live = live_scratch(plan, m);
        REQUIRE(live.max_blocks <= plan.scratch.max_blocks);
        REQUIRE(live.total_bytes() <= plan.required_bytes());
        most_blocks = std::max(most_blocks, live.max_blocks);
      }
      CHECK(most_blocks == plan.scratch.max_blocks);  // and no more than that was planned
    }
  }
}

TEST_CASE("S02: the query is the sum of its stated regions and stays within rounding of what the largest m touches") {
  for (const i64 tokens : {1, 32, 3072, 8192, 1000000}) {
    const Plan plan = *make_plan(seed_case(tokens), kHopper);
    i64 sum = 0;
    for (const PlannedRegion& r : plan.regions) {
      CHECK(r.offset_bytes >= sum);
      CHECK(r.offset_bytes < sum + kScratchAlignBytes);
      CHECK(r.offset_bytes % kScratchAlignBytes == 0);
      sum = r.offset_bytes + r.bytes;
    }
    CHECK(plan.regions.front().name == "control");
    CHECK(plan.required_bytes() >= sum);
    CHECK(plan.required_bytes() < sum + kScratchAlignBytes);
  }
}

TEST_CASE("N13: byte counts are 64-bit and do not wrap past 2^31 and 2^32") {
  // rows * 2 I just over 2^31 and over 2^32 elements
  for (const i64 tokens : {140000, 270000}) {
    const i64 rows = tokens * 8;
    const i64 payload = rows * (1024 + 2048) * 2;
    const i64 bytes = bytes_of(problem_of(2048, 1024, 64, 8, tokens));
    CHECK(bytes > payload);
    CHECK(bytes < payload + payload / 100);
  }
  const i64 rows = i64{1000000} * 32;
  const i64 bytes = bytes_of(problem_of(8192, 4096, 8, 32, 1000000));
  CHECK(bytes > rows * (8192 + 4096) * 2);
  CHECK(bytes < rows * (8192 + 4096) * 2 + rows * 16);
  const Plan big = *make_plan(problem_of(4096, 1024, 513, 8, 16), kHopper);
  CHECK(big.prepared_weight_bytes() > i64{513} * 3 * 4096 * 1024 / 2);
}

TEST_CASE("M3: fp16 intermediates and routed rows are fp32, and the query says so") {
  Problem p = seed_case();
  const i64 bf16 = bytes_of(p);
  p.dtype = DType::f16;
  const Plan plan = *make_plan(p, kHopper);
  CHECK(plan.required_bytes() > bf16 + 512 * (6144 + 512) * 2);
  CHECK(plan.regions.size() == 7);
}

TEST_CASE("S16: the plan has no bucket beyond its capacity") {
  const Plan plan = *make_plan(seed_case(64), kHopper);
  CHECK(plan.chunk_tokens == 64);
  CHECK(plan.buckets.back().last_tokens == 64);
  // all 512 routes to one expert still fit
  CHECK(plan.scratch.max_blocks >= 512 / plan.buckets.back().block_rows);
}

TEST_CASE("S02: a cap cuts runs into the largest chunks that stay below it") {
  const Problem p = seed_case(8192);
  const i64 whole = bytes_of(p);
  for (const i64 cap : {i64{200000}, i64{1} << 20, i64{8} << 20, i64{64} << 20, whole - 1, whole, whole + 1}) {
    const Plan plan = *make_plan(p, kHopper, {{}, cap});
    CHECK(plan.required_bytes() <= cap);
    CHECK(plan.chunk_tokens >= 1);
    CHECK(plan.buckets.back().last_tokens == plan.chunk_tokens);
    if (cap >= whole) {
      CHECK(plan.chunk_tokens == 8192);
      CHECK(plan.required_bytes() == whole);
    } else {
      CHECK(plan.required_bytes() == bytes_of(seed_case(plan.chunk_tokens)));  // the plan of the chunk
      CHECK(bytes_of(seed_case(plan.chunk_tokens + 1)) > cap);                 // and one token more would not fit
      CHECK(plan.notes.back().find("are cut into chunks of") != std::string::npos);
    }
  }
  const Result<Plan> tight = make_plan(p, kHopper, {{}, 70000});
  REQUIRE_FALSE(tight.ok());
  CHECK(tight.error().message == "scratch cap 70000: 1 token(s) at a time need 73728 bytes");
  CHECK(make_plan(p, kHopper, {{}, -1}).error().message == "scratch cap -1: must be 0 (none) or a number of bytes");
}

TEST_CASE("plan: one token more per rank never needs less, nor one route more") {
  for (i64 topk = 1; topk < 32; ++topk) {
    CHECK(bytes_of(problem_of(512, 256, 16, topk, 64)) <= bytes_of(problem_of(512, 256, 16, topk + 1, 64)));
  }
}

}  // namespace w4moe
