// libFuzzer entry of the cache's entry files and key texts. Configure with clang and -DW4MOE_FUZZ=ON -DW4MOE_SANITIZE=address,undefined.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cache/entry.hpp"

namespace {

using namespace w4moe::cache;

/// What is decoded must encode to the very same bytes.
void check(Bytes file) {
  const Bytes before = file;
  const w4moe::Result<Entry> entry = decode_entry(std::move(file));
  if (!entry) return;
  if (!entry->payload || entry->payload->empty()) std::abort();
  if (parse_key_text(entry->key_text) && !diff_key_texts(entry->key_text, entry->key_text).empty()) std::abort();
  const w4moe::Result<Bytes> again = encode_entry(*entry);
  if (again && *again != before) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  check(Bytes(first, first + size));
  // Behind a footer whose magic, version and checksum are right: otherwise hardly anything gets past them.
  if (size < kFooterBytes) return 0;
  Bytes file(first, first + size);
  std::byte* footer = file.data() + (size - kFooterBytes);
  std::memcpy(footer, "w4moeKC\n\1\0\0\0\0\0\0\0", 16);
  XXH128_canonical_t sum;
  XXH128_canonicalFromHash(&sum, XXH3_128bits(file.data(), size - 16));
  std::memcpy(footer + 48, sum.digest, 16);
  check(std::move(file));
  return 0;
}
