#include <random>

#include "generator/compile/cubin_info.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cubin_builder.hpp"

using namespace w4moe;
using namespace w4moe::test;

TEST_CASE("C10: thirty thousand damaged cubins end in facts or in one error") {
  FakeCubin cubin;
  cubin.facts.emplace_back("w4moe_fact_threads", 256);
  const auto whole = cubin.bytes();
  REQUIRE(read_cubin(whole));
  std::mt19937 random(11);
  int read = 0;
  for (int i = 0; i < 30000; ++i) {
    auto bytes = whole;
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    for (unsigned edits = 1 + random() % 4; edits > 0 && bytes.size() >= 8; --edits) {
      const std::size_t at = random() % (bytes.size() - 7);
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<std::byte>(random()); break;
        case 1: std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 8, static_cast<std::byte>(random() % 2 == 0 ? 0xff : 0x7f)); break;
        default: std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 1 + random() % 8, std::byte{0});
      }
    }
    const Result<CubinInfo> info = read_cubin(bytes);
    if (info) {
      ++read;
      (void)info->arch();
    } else {
      REQUIRE(info.error().code == ErrorCode::corrupt);
      REQUIRE_FALSE(info.error().message.empty());
    }
  }
  CHECK(read > 100);
}
