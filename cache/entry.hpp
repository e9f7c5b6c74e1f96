// One cache entry and its file format, version 1:
//
//   file     = payload key_text builder metadata footer
//   payload  = the kernel binary; first, so that the file is an ELF object to cuobjdump and its kin
//   key_text = what KeyBuilder hashed: SHA-256 of it is the key
//   builder  = which compiler build made the payload, "12.4.131"
//   metadata = JSON text for people and tools; the cache never parses it
//   footer   = 64 bytes, all numbers little-endian:
//              0 magic "w4moeKC\n"   8 u32 version (1)      12 u32 flags (0)
//             16 u64 payload bytes  24 u64 metadata bytes   32 u32 key_text bytes  36 u32 builder bytes
//             40 u64 reserved (0)   48 XXH3-128, canonical (big-endian), of every byte before it
//
// The sections stand side by side rather than inside the JSON, so that nothing is parsed before its checksum is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/key.hpp"
#include "w4moe/error.hpp"

namespace w4moe::cache {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint32_t kEntryVersion = 1;
inline constexpr std::size_t kFooterBytes = 64;
/// Larger files are not read: a kernel is tens to hundreds of KiB.
inline constexpr std::uint64_t kMaxEntryBytes = std::uint64_t{1} << 30;

/// Cheap to copy: the payload is shared and never changes.
struct Entry {
  std::shared_ptr<const Bytes> payload;  ///< never null or empty in a store
  std::string key_text;                  ///< KeyBuilder::text()
  std::string builder;                   ///< see EntryName; may be empty
  std::string metadata;                  ///< JSON text; may be empty

  Key key() const { return Key::of_text(key_text); }
  EntryName name() const { return {key(), builder}; }
  /// Size of its file.
  std::uint64_t file_bytes() const;
};

/// An entry with its own copy of `payload_bytes` bytes at `payload`.
Entry make_entry(const void* payload, std::size_t payload_bytes, std::string key_text, std::string builder = {},
                 std::string metadata = {});

/// The bytes of the entry's file. invalid_argument for an empty payload, a builder that cannot be a file name, or
/// more than kMaxEntryBytes.
Result<Bytes> encode_entry(const Entry& entry);

/// Takes a file apart and verifies it: lengths, version, flags, checksum. corrupt with the reason otherwise.
/// Takes the buffer over, so that the payload is not copied.
Result<Entry> decode_entry(Bytes file);

/// decode_entry, and the entry must be the one that was asked for: same key; same builder, unless any would do.
Result<Entry> decode_entry(Bytes file, const EntryName& expected);

}  // namespace w4moe::cache
