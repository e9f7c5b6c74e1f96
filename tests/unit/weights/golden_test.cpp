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
      {"mxfp4", 96, Activation::silu, true, 0xec64f5f185b2a329ull},
      {"mxfp4", 40, Activation::silu, false, 0x35f0fa6fb9f81ed5ull},
      {"mxfp4:wide", 64, Activation::silu, false, 0xd5467e42a5afc507ull},
      {"nvfp4", 80, Activation::silu, false, 0xd6444acee3244278ull},
      {"nvfp4", 48, Activation::relu2, true, 0x7d5d2a9dedafa7e3ull},
      {"int4:g32", 96, Activation::silu, false, 0xf3235b566d98948full},
      {"int4:g128:zp", 128, Activation::silu, false, 0x64a405d0f3bb9810ull},
      {"int4:g32:zp:f16", 32, Activation::relu2, false, 0xafc77800700695deull},
      {"int4:row:zp", 72, Activation::silu, false, 0x78075b44ff351ac8ull},
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
