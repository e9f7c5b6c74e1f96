// The identity of a packed layout: it changes with every field that moves a byte, and never by accident.
#include <cstring>
#include <set>

#include "contract/layout_id.h"
#include "tests/support/catch.hpp"
#include "tests/unit/contract/formats.hpp"

namespace w4moe {
namespace {

constexpr WeightLayout kBase{Shape{2880, 2880, 128, 4, 64}, kMxfp4, true, false};
static_assert(layout_id(kBase) != 0);
static_assert(layout_id(kBase) != kernel_layout_id(kBase));

}  // namespace

TEST_CASE("layout id: golden values; a change here is a change of kLayoutVersion") {
  CHECK(kLayoutVersion == 1);
  CHECK(layout_id(kBase) == 0x7bc688d60245a484ull);
  CHECK(layout_id({Shape{6144, 512, 160, 8, 64}, kNvfp4, true, false}) == 0xdf51bdd33205ba15ull);
  CHECK(layout_id({Shape{4096, 176, 16, 8, 64}, {CodeType::u4, ScaleType::bf16, kWholeRow, true, false}, false, false}) ==
        0x42552efeb43b8e41ull);
}

TEST_CASE("layout id: every field that affects the bytes changes it") {
  std::set<u64> ids{layout_id(kBase)};
  const auto differs = [&](WeightLayout w) { return ids.insert(layout_id(w)).second; };
  WeightLayout w = kBase;
  w.shape.hidden = 2912;
  CHECK(differs(w));
  w = kBase;
  w.shape.intermediate = 2912;
  CHECK(differs(w));
  w = kBase;
  w.shape.experts = 127;
  CHECK(differs(w));
  w = kBase;
  w.gated = false;
  CHECK(differs(w));
  w = kBase;
  w.has_bias = true;
  CHECK(differs(w));
  for (const QuantFormat& f : test::all_formats()) {
    if (f == kBase.format) continue;
    w = kBase;
    w.format = f;
    CHECK(differs(w));
  }
}

TEST_CASE("layout id: shapes that pad to the same bytes still differ") {
  const auto id = [](i64 hidden, i64 intermediate) { return layout_id({Shape{hidden, intermediate, 8, 2, 1}, kNvfp4, true, false}); };
  CHECK(WeightLayout{Shape{512, 80, 8, 2, 1}, kNvfp4, false, false}.fc1().total_bytes() ==
        WeightLayout{Shape{496, 80, 8, 2, 1}, kNvfp4, false, false}.fc1().total_bytes());
  CHECK(id(512, 80) != id(496, 80));
  CHECK(id(512, 80) != id(512, 96));
}

TEST_CASE("layout id: top-k and token capacity do not matter") {
  WeightLayout w = kBase;
  w.shape.topk = 8;
  w.shape.max_tokens = 1;
  CHECK(layout_id(w) == layout_id(kBase));
}

TEST_CASE("layout id: kernels share it over experts and biases, and over nothing else") {
  WeightLayout w = kBase;
  w.shape.experts = 7;
  w.has_bias = true;
  CHECK(kernel_layout_id(w) == kernel_layout_id(kBase));
  w = kBase;
  w.shape.hidden = 2912;
  CHECK(kernel_layout_id(w) != kernel_layout_id(kBase));
  w = kBase;
  w.gated = false;
  CHECK(kernel_layout_id(w) != kernel_layout_id(kBase));
}

TEST_CASE("weight header: 64 bytes that name the layout") {
  const WeightHeader h = make_weight_header(kBase);
  CHECK(std::memcmp(&h, "W4W4MOE1", 8) == 0);
  CHECK(h.layout_id == layout_id(kBase));
  CHECK(h.layout_version == kLayoutVersion);
  CHECK(h.hidden == 2880);
  CHECK(h.intermediate == 2880);
  CHECK(h.experts == 128);
  CHECK(h.group_size == 32);
  CHECK(h.gated == 1);
  CHECK(h.has_bias == 0);
  CHECK(h.total_bytes == static_cast<u64>(kBase.total_bytes()));
  const WeightHeader i = make_weight_header(
      {Shape{512, 256, 4, 1, 1}, {CodeType::u4, ScaleType::f16, kWholeRow, true, false}, false, true});
  CHECK(i.code == 1);
  CHECK(i.scale == 3);
  CHECK(i.group_size == 0);
  CHECK(i.has_zero_point == 1);
  CHECK(i.gated == 0);
  CHECK(i.has_bias == 1);
}

}  // namespace w4moe
