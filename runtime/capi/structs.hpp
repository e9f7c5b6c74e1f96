// Structures that grow: read from callers of any version, written to callers of any version.
#pragma once

#include <algorithm>
#include <cstring>

#include "generator/problem/errors.hpp"
#include "runtime/capi/handles.hpp"

namespace w4moe::capi {

/// A larger size is no structure of a near version, but memory that was never set.
inline constexpr uint64_t kLargestGrowthBytes = 4096;

/// Bytes of the caller's structure, or an error that says how to set it.
template <class T>
Status check_size(const char* name, const T* from) {
  if (from == nullptr) return null_argument(name);
  if (from->struct_size >= sizeof(uint64_t) && from->struct_size <= sizeof(T) + kLargestGrowthBytes) return {};
  return invalid_argument("{}: struct_size {} is no size of this structure; W4MOE_INIT sets it to {}", name, from->struct_size, sizeof(T));
}

/// A structure of the caller's as this library knows it: what an older caller lacks is zero, what a newer one adds must be zero.
template <class T>
Result<T> read_struct(const char* name, const T* from) {
  if (Status s = check_size(name, from); !s) return s.error();
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (uint64_t i = sizeof(T); i < from->struct_size; ++i) {
    if (bytes[i] != 0) {
      return unsupported("{}: the byte at {} belongs to a newer version of the structure than this library's {} bytes, and is not zero", name, i, sizeof(T));
    }
  }
  T copy;
  std::memset(static_cast<void*>(&copy), 0, sizeof(T));
  std::memcpy(&copy, from, static_cast<size_t>(std::min<uint64_t>(from->struct_size, sizeof(T))));
  return copy;
}

/// The same where the caller may give none: all defaults.
template <class T>
Result<T> read_optional(const char* name, const T* from) {
  if (from != nullptr) return read_struct(name, from);
  T defaults;
  std::memset(static_cast<void*>(&defaults), 0, sizeof(T));
  return defaults;
}

/// As much of a result as the caller's structure has room for. Its size was checked.
template <class T>
void write_struct(T* to, T value) {
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, static_cast<size_t>(std::min<uint64_t>(to->struct_size, sizeof(T))));
}

}  // namespace w4moe::capi
