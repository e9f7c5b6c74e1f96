#include "cache/entry.hpp"

#define XXH_INLINE_ALL  // header only: the library gains no link dependency
#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

namespace w4moe::cache {
namespace {

constexpr char kMagic[8] = {'w', '4', 'm', 'o', 'e', 'K', 'C', '\n'};
constexpr std::size_t kChecksumBytes = 16;

template <class T>
void store_le(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T load_le(const std::byte* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(at[i]) << (8 * i)));
  return value;
}

XXH128_canonical_t checksum(const std::byte* bytes, std::size_t size) {
  XXH128_canonical_t out;
  XXH128_canonicalFromHash(&out, XXH3_128bits(bytes, size));
  return out;
}

Error corrupt(std::string message) { return Error{ErrorCode::corrupt, std::move(message)}; }
Error invalid(std::string message) { return Error{ErrorCode::invalid_argument, std::move(message)}; }

std::string text_at(const Bytes& file, std::uint64_t offset, std::uint64_t size) {
  return {reinterpret_cast<const char*>(file.data()) + offset, static_cast<std::size_t>(size)};
}

}  // namespace

std::uint64_t Entry::file_bytes() const {
  return (payload ? payload->size() : 0) + key_text.size() + builder.size() + metadata.size() + kFooterBytes;
}

Entry make_entry(const void* payload, std::size_t payload_bytes, std::string key_text, std::string builder,
                 std::string metadata) {
  const auto* first = static_cast<const std::byte*>(payload);
  return {std::make_shared<const Bytes>(first, first + payload_bytes), std::move(key_text), std::move(builder),
          std::move(metadata)};
}

Result<Bytes> encode_entry(const Entry& entry) {
  if (!entry.payload || entry.payload->empty()) return invalid("cache entry with an empty payload");
  if (!valid_builder(entry.builder))
    return invalid(fmt::format("builder '{}' is not up to 32 of [0-9A-Za-z._+]", entry.builder));
  if (entry.file_bytes() > kMaxEntryBytes)
    return invalid(fmt::format("cache entry of {} bytes, at most {}", entry.file_bytes(), kMaxEntryBytes));

  Bytes file;
  file.reserve(static_cast<std::size_t>(entry.file_bytes()));
  file.insert(file.end(), entry.payload->begin(), entry.payload->end());
  for (const std::string* section : {&entry.key_text, &entry.builder, &entry.metadata}) {
    const auto* first = reinterpret_cast<const std::byte*>(section->data());
    file.insert(file.end(), first, first + section->size());
  }
  const std::size_t footer_at = file.size();
  file.resize(footer_at + kFooterBytes);  // zeros: flags and the reserved field
  std::byte* footer = file.data() + footer_at;
  std::memcpy(footer, kMagic, sizeof kMagic);
  store_le<std::uint32_t>(footer + 8, kEntryVersion);
  store_le<std::uint64_t>(footer + 16, entry.payload->size());
  store_le<std::uint64_t>(footer + 24, entry.metadata.size());
  store_le<std::uint32_t>(footer + 32, static_cast<std::uint32_t>(entry.key_text.size()));
  store_le<std::uint32_t>(footer + 36, static_cast<std::uint32_t>(entry.builder.size()));
  const XXH128_canonical_t sum = checksum(file.data(), file.size() - kChecksumBytes);
  std::memcpy(footer + 48, sum.digest, kChecksumBytes);
  return file;
}

Result<Entry> decode_entry(Bytes file) {
  if (file.size() < kFooterBytes) return corrupt(fmt::format("{} bytes, too short for an entry", file.size()));
  const std::size_t footer_at = file.size() - kFooterBytes;
  const std::byte* footer = file.data() + footer_at;
  if (std::memcmp(footer, kMagic, sizeof kMagic) != 0) return corrupt("no footer: cut short, or not an entry");
  const auto version = load_le<std::uint32_t>(footer + 8);
  if (version != kEntryVersion) return corrupt(fmt::format("entry version {}, not {}", version, kEntryVersion));
  const XXH128_canonical_t sum = checksum(file.data(), file.size() - kChecksumBytes);
  if (std::memcmp(footer + 48, sum.digest, kChecksumBytes) != 0) return corrupt("checksum does not match");
  if (load_le<std::uint32_t>(footer + 12) != 0 || load_le<std::uint64_t>(footer + 40) != 0)
    return corrupt("unknown flags");

  const auto payload_bytes = load_le<std::uint64_t>(footer + 16),
             metadata_bytes = load_le<std::uint64_t>(footer + 24);
  const std::uint64_t key_bytes = load_le<std::uint32_t>(footer + 32),
                      builder_bytes = load_le<std::uint32_t>(footer + 36);
  if (payload_bytes == 0 || payload_bytes > footer_at || metadata_bytes > footer_at ||
      payload_bytes + metadata_bytes + key_bytes + builder_bytes != footer_at)
    return corrupt("section lengths do not add up");

  Entry entry;
  entry.key_text = text_at(file, payload_bytes, key_bytes);
  entry.builder = text_at(file, payload_bytes + key_bytes, builder_bytes);
  entry.metadata = text_at(file, payload_bytes + key_bytes + builder_bytes, metadata_bytes);
  file.resize(static_cast<std::size_t>(payload_bytes));
  entry.payload = std::make_shared<const Bytes>(std::move(file));
  return entry;
}

Result<Entry> decode_entry(Bytes file, const EntryName& expected) {
  Result<Entry> entry = decode_entry(std::move(file));
  if (!entry) return entry;
  if (const Key found = entry->key(); found != expected.key)
    return corrupt(
        fmt::format("holds key {} under the name of {}", found.short_hex(), expected.key.short_hex()));
  if (!expected.builder.empty() && entry->builder != expected.builder)
    return corrupt(fmt::format("made by '{}' under the name of '{}'", entry->builder, expected.builder));
  return entry;
}

}  // namespace w4moe::cache
