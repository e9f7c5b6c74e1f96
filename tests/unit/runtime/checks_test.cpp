#include "runtime/dispatch/checks.hpp"

#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

u8* at(u64 address) { return reinterpret_cast<u8*>(address); }

RunArgs good_args(i64 tokens = 4) {
  RunArgs a;
  a.tokens = tokens;
  a.x = at(0x10000);
  a.ids = at(0x20000);
  a.router_weights = at(0x30000);
  a.out = at(0x40000);
  return a;
}

/// The message for one change to good arguments.
template <class Change>
std::string refusal(Change&& change) {
  RunArgs args = good_args();
  change(args);
  return error_of(check_run(small_plan(), args), ErrorCode::invalid_argument);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("run checks: good arguments pass, and no tokens need no pointer (N12)") {
  const Plan plan = small_plan();
  must(check_run(plan, good_args(1)));
  must(check_run(plan, good_args(64)));
  must(check_run(plan, RunArgs{}));
}

TEST_CASE("S16: more tokens than planned are refused with both numbers") {
  const std::string message = error_of(check_run(small_plan(), good_args(65)), ErrorCode::invalid_argument);
  CHECK(has(message, "65"));
  CHECK(has(message, "64"));
  error_of(check_run(small_plan(), good_args(-1)), ErrorCode::invalid_argument);
}

TEST_CASE("run checks: null, misaligned and badly strided arguments are refused by name and value") {
  CHECK(has(refusal([](RunArgs& a) { a.x = nullptr; }), "x is null"));
  CHECK(has(refusal([](RunArgs& a) { a.out = nullptr; }), "out is null"));
  CHECK(has(refusal([](RunArgs& a) { a.ids = nullptr; }), "ids is null"));
  CHECK(has(refusal([](RunArgs& a) { a.router_weights = nullptr; }), "router_weights is null"));
  CHECK(has(refusal([](RunArgs& a) { a.x = at(0x10008); }), "x = 0x10008 is not aligned to 16"));
  CHECK(has(refusal([](RunArgs& a) { a.out = at(0x40002); }), "out = 0x40002"));
  CHECK(has(refusal([](RunArgs& a) { a.ids = at(0x20002); }), "ids = 0x20002 is not aligned to 4"));
  CHECK(has(refusal([](RunArgs& a) {
              a.ids = at(0x20004);
              a.id_type = IdType::i64;
            }),
            "aligned to 8"));
  CHECK(has(refusal([](RunArgs& a) { a.x_row_stride_elems = 248; }), "x_row_stride_elems = 248"));
  CHECK(has(refusal([](RunArgs& a) { a.x_row_stride_elems = 260; }), "multiple of 8"));
  CHECK(has(refusal([](RunArgs& a) { a.out_row_stride_elems = -256; }), "out_row_stride_elems = -256"));
  CHECK(has(refusal([](RunArgs& a) { a.ids_row_stride_elems = 1; }), "ids_row_stride_elems = 1"));
  CHECK(has(refusal([](RunArgs& a) { a.router_row_stride_elems = 1; }), "router_row_stride_elems = 1"));
}

TEST_CASE("N13: tokens farther apart than the wgmma kernels reach are refused, and the message says how to be served") {
  Problem p = small_problem();
  p.shape = Shape{256, 256, 4, 2, 4096};
  RunArgs a = good_args(4096);
  a.x_row_stride_elems = i64{1} << 23;  // 4096 rows of 16 MiB: 64 GiB, the last that is reached
  must(check_run(plan_of(p), a));
  a.x_row_stride_elems += 8;
  const std::string message = error_of(check_run(plan_of(p), a), ErrorCode::unsupported);
  CHECK(has(message, "x_row_stride_elems = 8388616: 4096 tokens lie more than 64 GiB apart"));
  CHECK(has(message, "no-wgmma"));
  must(check_run(plan_of(p, {{"no-wgmma"}, 0}), a));
}

TEST_CASE("N27: router weights and ids of a type that no kernel reads are refused before any launch") {
  CHECK(has(refusal([](RunArgs& a) { a.router_dtype = DType::f16; }), "f32 or bf16"));
  CHECK(has(refusal([](RunArgs& a) { a.id_type = static_cast<IdType>(7); }), "i32 nor i64"));
  for (const IdType id : {IdType::i32, IdType::i64}) {
    for (const DType router : {DType::f32, DType::bf16}) {
      RunArgs a = good_args();
      a.id_type = id;
      a.router_dtype = router;
      must(check_run(small_plan(), a));
    }
  }
}

TEST_CASE("S01: scratch one byte short is refused with both numbers, and must be aligned") {
  const Plan plan = small_plan();
  const i64 needed = plan.required_bytes();
  must(check_scratch(plan, at(0x100000), needed));
  const std::string message = error_of(check_scratch(plan, at(0x100000), needed - 1), ErrorCode::invalid_argument);
  CHECK(has(message, std::to_string(needed)));
  CHECK(has(message, std::to_string(needed - 1)));
  CHECK(has(error_of(check_scratch(plan, at(0x100080), needed), ErrorCode::invalid_argument), "256"));
  error_of(check_scratch(plan, nullptr, needed), ErrorCode::invalid_argument);
}

TEST_CASE("bind checks: weights of another layout are refused with both ids and the fields that differ") {
  const Plan plan = small_plan();
  PreparedWeights weights{at(0x100000), plan.prepared_weight_bytes(), make_weight_header(plan.weights)};
  must(check_weights(plan, weights));

  Problem other = small_problem();
  other.shape.experts = 16;
  other.format = kNvfp4;
  const Plan other_plan = plan_of(other);
  PreparedWeights wrong{at(0x100000), other_plan.prepared_weight_bytes(), make_weight_header(other_plan.weights)};
  const std::string message = error_of(check_weights(plan, wrong), ErrorCode::invalid_argument);
  CHECK(has(message, fmt::format("{:#018x}", plan.layout())));
  CHECK(has(message, fmt::format("{:#018x}", other_plan.layout())));
  CHECK(has(message, "experts 16, the plan has 8"));
  CHECK(has(message, "group size 16, the plan has 32"));

  // The same layout at another max_tokens is the same weights.
  Problem longer = small_problem();
  longer.shape.max_tokens = 4096;
  must(check_weights(plan_of(longer), weights));

  PreparedWeights small = weights;
  small.bytes -= 1;
  CHECK(has(error_of(check_weights(plan, small), ErrorCode::invalid_argument), std::to_string(small.bytes)));
  PreparedWeights shifted = weights;
  shifted.data = at(0x100010);
  CHECK(has(error_of(check_weights(plan, shifted), ErrorCode::invalid_argument), "aligned"));
  PreparedWeights nonsense = weights;
  nonsense.header.magic = 1;
  CHECK(has(error_of(check_weights(plan, nonsense), ErrorCode::invalid_argument), "does not hold prepared weights"));
  PreparedWeights old = weights;
  old.header.layout_version += 1;
  CHECK(has(error_of(check_weights(plan, old), ErrorCode::invalid_argument), "layout version"));
  PreparedWeights none = weights;
  none.data = nullptr;
  error_of(check_weights(plan, none), ErrorCode::invalid_argument);
}

TEST_CASE("run checks: out must not lie in what the run reads or works in; it may be x") {
  const Plan plan = small_plan();
  const PreparedWeights weights{at(0x1000000), plan.prepared_weight_bytes(), make_weight_header(plan.weights)};
  const void* scratch = at(0x2000000);
  must(check_overlap(plan, good_args(), weights, scratch));
  RunArgs in_place = good_args();
  in_place.out = const_cast<void*>(in_place.x);
  must(check_overlap(plan, in_place, weights, scratch));
  RunArgs in_ids = good_args();
  in_ids.ids = static_cast<u8*>(in_ids.out) + 3 * 512;
  CHECK(has(error_of(check_overlap(plan, in_ids, weights, scratch), ErrorCode::invalid_argument), "overlaps ids"));
  RunArgs beside = good_args();
  beside.ids = static_cast<u8*>(beside.out) + 4 * 512;  // just past the last row
  must(check_overlap(plan, beside, weights, scratch));
  RunArgs in_scratch = good_args();
  in_scratch.out = at(0x2000000 + 512);
  error_of(check_overlap(plan, in_scratch, weights, scratch), ErrorCode::invalid_argument);
  RunArgs in_weights = good_args();
  in_weights.out = at(0x1000000 - 16);
  error_of(check_overlap(plan, in_weights, weights, scratch), ErrorCode::invalid_argument);
  RunArgs x_in_scratch = good_args();
  x_in_scratch.x = at(0x2000000);
  error_of(check_overlap(plan, x_in_scratch, weights, scratch), ErrorCode::invalid_argument);
}

TEST_CASE("bind checks: grids and shared memory beyond the device are refused") {
  const Plan plan = small_plan();
  must(check_grids(plan));
  Plan tight = plan;
  tight.device.shared_optin_bytes = 1024;
  CHECK(has(error_of(check_grids(tight), ErrorCode::unsupported), "1024"));
  Plan huge = plan;
  huge.buckets.back().last_tokens = i64{1} << 36;
  CHECK(has(error_of(check_grids(huge), ErrorCode::unsupported), "2147483647"));
}
