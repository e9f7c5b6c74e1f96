// The message for a kernel that may not be compiled and is not in the cache: what it is, what comes nearest, what to do.
#pragma once

#include <string>

#include "cache/store.hpp"

namespace w4moe {

/// Of the entries in the store, the one whose key text differs in the fewest fields, and how: "4b1c... differs in arch: ...".
/// "the cache is empty" where there is none. Reads at most 512 entries.
std::string nearest_entry(cache::Store& store, const std::string& key_text);

/// The fields of a key, one a line; long values by their first line and length.
std::string key_lines(const std::string& key_text);

}  // namespace w4moe
