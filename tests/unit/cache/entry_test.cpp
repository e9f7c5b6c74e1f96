#include "cache/entry.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <catch2/catch.hpp>
#include <cstring>

using namespace w4moe;
using namespace w4moe::cache;

namespace {

Entry sample(const std::string& payload =
                 "\x7f"
                 "ELF kernel",
             const std::string& arch = "sm_90a") {
  return make_entry(payload.data(), payload.size(), KeyBuilder().field("arch", arch).text(), "12.4.131",
                    R"({"registers":96})");
}

Bytes encoded(const Entry& entry) {
  Result<Bytes> file = encode_entry(entry);
  REQUIRE(file);
  return *file;
}

std::string as_hex(const Bytes& bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", std::to_integer<unsigned>(b));
    out += text;
  }
  return out;
}

}  // namespace

TEST_CASE("an entry survives encoding, and its payload comes first") {
  const Entry entry = sample();
  const Bytes file = encoded(entry);
  CHECK(file.size() == entry.file_bytes());
  CHECK(std::memcmp(file.data(), entry.payload->data(), entry.payload->size()) == 0);
  const Result<Entry> back = decode_entry(file, entry.name());
  REQUIRE(back);
  CHECK(*back->payload == *entry.payload);
  CHECK(back->key_text == entry.key_text);
  CHECK(back->builder == entry.builder);
  CHECK(back->metadata == entry.metadata);
  CHECK(decode_entry(file, EntryName(entry.key())));  // any builder
}

TEST_CASE("golden bytes: entries of version 1 stay readable for ever") {
  const std::string golden =
      "7f454c46206b65726e656c"             // payload
      "617263685b365d3d736d5f3930610a"     // key text: arch[6]=sm_90a
      "31322e342e313331"                   // builder
      "7b22726567697374657273223a39367d"   // metadata
      "77346d6f654b430a0100000000000000"   // magic, version, flags
      "0b000000000000001000000000000000"   // payload, metadata bytes
      "0f000000080000000000000000000000"   // key text, builder bytes, reserved
      "27de7052be4c8d6d02474f0f2bc17c9f";  // XXH3-128
  CHECK(as_hex(encoded(sample())) == golden);
  Bytes file;
  for (std::size_t i = 0; i < golden.size(); i += 2)
    file.push_back(static_cast<std::byte>(std::stoi(golden.substr(i, 2), nullptr, 16)));
  const Result<Entry> back = decode_entry(file, sample().name());
  REQUIRE(back);
  CHECK(*back->payload == *sample().payload);
  CHECK(back->metadata == sample().metadata);
}

TEST_CASE("C10: an entry cut anywhere is refused") {
  const Bytes file = encoded(sample());
  for (std::size_t size = 0; size < file.size(); ++size) {
    const auto result = decode_entry(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)));
    REQUIRE_FALSE(result);
    REQUIRE(result.error().code == ErrorCode::corrupt);
  }
}

TEST_CASE("C10: any flipped bit is detected") {
  const Bytes file = encoded(sample());
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    Bytes damaged = file;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    REQUIRE_FALSE(decode_entry(damaged));
  }
}

TEST_CASE("C10: binary and metadata of different entries, and trailing bytes, are detected") {
  const Bytes a = encoded(sample("kernel A")), b = encoded(sample("kernel B"));
  Bytes mixed(a.begin(), a.begin() + 8);
  mixed.insert(mixed.end(), b.begin() + 8, b.end());
  CHECK_FALSE(decode_entry(mixed));
  Bytes longer = a;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_entry(longer));
  Bytes twice = a;
  twice.insert(twice.end(), b.begin(), b.end());
  CHECK_FALSE(decode_entry(twice));
}

TEST_CASE("C10, C17: an entry under another's name is refused, for key and for builder") {
  const Entry entry = sample("kernel", "sm_120a");
  const auto wrong_key = decode_entry(encoded(entry), sample("kernel", "sm_90a").name());
  REQUIRE_FALSE(wrong_key);
  CHECK(wrong_key.error().message.find(entry.key().short_hex()) != std::string::npos);
  CHECK_FALSE(decode_entry(encoded(entry), EntryName(entry.key(), "12.9.0")));
}

TEST_CASE("a footer with a right checksum and wrong numbers is refused, however large they are") {
  const Bytes good = encoded(sample());
  const auto with = [&](std::size_t offset, std::uint64_t value, std::size_t bytes) {
    Bytes file = good;
    std::memcpy(file.data() + file.size() - kFooterBytes + offset, &value, bytes);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(file.data(), file.size() - sizeof sum.digest));
    std::memcpy(file.data() + file.size() - sizeof sum.digest, sum.digest, sizeof sum.digest);
    return decode_entry(file);
  };
  CHECK(with(8, 1, 4));  // version 1, as it was: the checksum is made right
  CHECK(with(8, 2, 4).error().message == "entry version 2, not 1");
  CHECK(with(12, 1, 4).error().message == "unknown flags");
  CHECK(with(40, 1, 8).error().message == "unknown flags");
  const std::uint64_t huge[] = {0, 1, good.size(), ~std::uint64_t{0}, std::uint64_t{1} << 63, 0xffffffff};
  for (const std::uint64_t value : huge) {
    for (const std::size_t offset : {16, 24}) REQUIRE_FALSE(with(offset, value, 8));
    for (const std::size_t offset : {32, 36}) REQUIRE_FALSE(with(offset, value, 4));
  }
}

TEST_CASE("what cannot be an entry is not encoded") {
  Entry entry = sample("");
  CHECK(encode_entry(entry).error().code == ErrorCode::invalid_argument);
  entry = sample();
  entry.builder = "../../etc";
  CHECK_FALSE(encode_entry(entry));
  entry.payload = nullptr;
  CHECK_FALSE(encode_entry(entry));
}
