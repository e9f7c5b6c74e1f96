// Fixed hashes of the packed bytes: a permutation that changes with no field of the layout changing is caught here, and only here.
// Whoever changes the bytes on purpose raises kLayoutVersion with them.
#include "contract/layout_id.h"
#include "tests/support/catch.hpp"
#include "tests/support/layers.hpp"

namespace w4moe {
namespace {

/// FNV-1a over everything behind the header, which names the version.
u64 hash_of(const std::vector<std::byte>& bytes) {
  u64 hash = 0xcbf29ce484222325ull;
  for (std::size_t i = sizeof(WeightHeader); i < bytes.size(); ++i) hash = (hash ^ static_cast<u64>(bytes[i])) * 0x100000001b3ull;
  return hash;
}

struct Golden {
  const char* format;
  i64 intermediate;
  Activation activation;
  bool bias;
  u64 hash;
};

TEST_CASE("packed bytes of a fixed layer") {
  static_assert(kLayoutVersion == 1, "new hashes belong to a new version");
  const Golden goldens[] = {
      {"mxfp4", 96, Activation::silu, true, 0xe42ae4223c2545bdull},
      {"mxfp4", 40, Activation::silu, false, 0xf4669ce18156c29dull},
      {"mxfp4:wide", 64, Activation::silu, false, 0x2035de86df36d02bull},
      {"nvfp4", 80, Activation::silu, false, 0xfe86c395400ec0bcull},
      {"nvfp4", 48, Activation::relu2, true, 0xa9c010cbbe4ffb0full},
      {"int4:g32", 96, Activation::silu, false, 0x3255cfc494e6500full},
      {"int4:g128:zp", 128, Activation::silu, false, 0xe8c2cfb3e45a4f24ull},
      {"int4:g32:zp:f16", 32, Activation::relu2, false, 0x333d25dcd1344102ull},
      {"int4:row:zp", 72, Activation::silu, false, 0x3cb8725d172b2878ull},
  };
  for (const Golden& golden : goldens) {
    Problem problem = test::small_problem(128, golden.intermediate, 2, *parse_format(golden.format), golden.activation);
    problem.has_bias = golden.bias;
    SyntheticOptions options;
    options.seed = 20;
    options.global_convention = GlobalConvention::none;
    const u64 hash = hash_of(test::packed(problem, make_layer(problem, options).source));
    INFO(golden.format << " I " << golden.intermediate);
    CHECK(hash == golden.hash);
  }
}

}  // namespace
}  // namespace w4moe
