#include "generator/render/variant_header.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/catch.hpp"
#include "tests/unit/generator_compile/variants.hpp"

// The recorded headers, compiled by this compiler as NVRTC compiles them: each under a name of its own.
#define kVariant kGoldenFc1
#include "tests/golden/render/fc1_nvfp4_sm_90a.h"
#undef kVariant
#define kVariant kGoldenFc2
#include "tests/golden/render/fc2_int4_sm_120a.h"
#undef kVariant
#define kVariant kGoldenRoute
#include "tests/golden/render/route_sm_80.h"
#undef kVariant

using namespace w4moe;

namespace {

struct Golden {
  const char* file;
  Variant variant;
};

const Golden kGoldens[] = {
    {"fc1_nvfp4_sm_90a", test::fc1_nvfp4()},
    {"fc2_int4_sm_120a", test::fc2_int4()},
    {"route_sm_80", test::route_sm80()},
};

/// The recorded text; W4MOE_UPDATE_GOLDEN=1 records it anew, for a person to read the difference.
std::string golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(W4MOE_GOLDEN_DIR) / "render" / name;
  if (std::getenv("W4MOE_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("rendered texts are the recorded ones, byte for byte") {
  for (const Golden& g : kGoldens) {
    const KernelSource source = render(g.variant);
    CHECK(source.variant_text == golden(std::string(g.file) + ".h", source.variant_text));
    CHECK(source.entry_text == golden(std::string(g.file) + ".cu", source.entry_text));
  }
}

TEST_CASE("a rendered header, compiled, is the variant that it was rendered from") {
  CHECK(kGoldenFc1 == test::fc1_nvfp4());
  CHECK(kGoldenFc2 == test::fc2_int4());
  CHECK(kGoldenRoute == test::route_sm80());
}

TEST_CASE("each kernel kind has its file and its symbol") {
  Variant v;
  for (const auto& [kind, name] : {std::pair{KernelKind::route, "route"}, {KernelKind::fc1, "fc1"}, {KernelKind::fc2, "fc2"},
                                   {KernelKind::combine, "combine"}, {KernelKind::fc2_direct, "fc2_direct"}, {KernelKind::fc1_direct, "fc1_direct"}, {KernelKind::route_count, "route_count"}, {KernelKind::route_place, "route_place"}, {KernelKind::pack, "pack"}, {KernelKind::scan, "scan"}}) {
    v.kind = kind;
    const KernelSource source = render(v);
    CHECK(source.entry_name == std::string("w4moe_") + name);
    CHECK(source.entry_text == std::string("#include \"w4moe_variant.h\"\n#include \"kernels/") + name + ".cuh\"\n");
    CHECK(source.description.rfind(name, 0) == 0);
  }
}

TEST_CASE("C13: every field of a variant is in its text") {
  const Variant base = test::fc1_nvfp4();
  const auto changed = [&](auto change) {
    Variant v = base;
    change(v);
    return render(v).variant_text != render(base).variant_text;
  };
  CHECK(render(base).variant_text == render(base).variant_text);
  CHECK(changed([](Variant& v) { v.kind = KernelKind::fc2; }));
  CHECK(changed([](Variant& v) { v.arch = Arch::sm_100a; }));
  CHECK(changed([](Variant& v) { v.hidden += 64; }));
  CHECK(changed([](Variant& v) { v.intermediate += 64; }));
  CHECK(changed([](Variant& v) { v.format.code = CodeType::u4; }));
  CHECK(changed([](Variant& v) { v.format.scale = ScaleType::e8m0; }));
  CHECK(changed([](Variant& v) { v.format.group_size = 32; }));
  CHECK(changed([](Variant& v) { v.format.has_zero_point = true; }));
  CHECK(changed([](Variant& v) { v.format.wide_exponent = true; }));
  CHECK(changed([](Variant& v) { v.activation = Activation::situ; }));
  CHECK(changed([](Variant& v) { v.dtype = DType::f16; }));
  CHECK(changed([](Variant& v) { v.tile.block_rows = 16; }));
  CHECK(changed([](Variant& v) { v.tile.warps_rows = 8; }));
  CHECK(changed([](Variant& v) { v.tile.warps_k = 1; }));
  CHECK(changed([](Variant& v) { v.tile.strips_per_warp = 2; }));
  CHECK(changed([](Variant& v) { v.tile.units_per_warp = 2; }));
  CHECK(changed([](Variant& v) { v.tile.stages = 4; }));
  CHECK(changed([](Variant& v) { v.tile.min_ctas_per_sm = 2; }));
}

TEST_CASE("every enumerator has its own name") {
  Variant v = test::fc1_nvfp4();
  std::vector<std::string> texts;
  for (int i = 0; i < kActivationCount; ++i) {
    v.activation = static_cast<Activation>(i);
    texts.push_back(render(v).variant_text);
  }
  for (const ScaleType scale : {ScaleType::e8m0, ScaleType::bf16, ScaleType::f16}) {
    v.format.scale = scale;
    texts.push_back(render(v).variant_text);
  }
  for (const Arch arch : {Arch::sm_80, Arch::sm_86, Arch::sm_89, Arch::sm_100a, Arch::sm_103a, Arch::sm_120a, Arch::sm_121a}) {
    v.arch = arch;
    texts.push_back(render(v).variant_text);
  }
  for (const std::string& text : texts) {
    CHECK(text.find('?') == std::string::npos);
    CHECK(std::count(texts.begin(), texts.end(), text) == 1);
  }
}
