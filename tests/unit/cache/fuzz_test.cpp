// Damaged entry files whose checksum is right, as no accident makes them: the footer's numbers are not trusted either.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <catch2/catch.hpp>
#include <random>

#include "support.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;

TEST_CASE("C10: twenty thousand entry files with damaged footers and a right checksum end in an entry or in one error") {
  std::mt19937 random(7);
  const Bytes whole = *encode_entry(sample("fuzz", 300));
  int decoded = 0;
  for (int i = 0; i < 20000; ++i) {
    Bytes file = whole;
    if (random() % 4 == 0) file.erase(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(random() % (file.size() - kFooterBytes)));
    std::byte* const footer = file.data() + (file.size() - kFooterBytes);
    for (auto edits = random() % 3; edits > 0; --edits) {
      // Numbers that are near the truth, far from it, or wrap when they are added up.
      const std::uint64_t values[] = {0, 1, file.size(), file.size() - kFooterBytes, random() % 600, ~std::uint64_t{0}, std::uint64_t{1} << 63, random()};
      const std::uint64_t value = values[random() % std::size(values)];
      std::memcpy(footer + 8 + 4 * (random() % 9), &value, random() % 2 == 0 ? 4 : 8);
    }
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(file.data(), file.size() - 16));
    std::memcpy(footer + 48, sum.digest, 16);
    const std::size_t bytes = file.size();
    const auto entry = decode_entry(std::move(file));
    if (!entry) {
      REQUIRE(entry.error().code == ErrorCode::corrupt);
      continue;
    }
    ++decoded;
    REQUIRE(entry->file_bytes() == bytes);
    REQUIRE_FALSE(entry->payload->empty());
  }
  CHECK(decoded > 1000);
}
