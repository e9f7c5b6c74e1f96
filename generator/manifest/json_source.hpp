// JSON text to a document with the checks that a plain parser leaves out: fields given twice, depth, and where a value stands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "w4moe/error.hpp"

namespace w4moe {

using Json = nlohmann::json;

/// Deepest nesting that is read; far above what a manifest needs.
inline constexpr int kMaxJsonDepth = 16;

/// Parses strictly: JSON as RFC 8259 has it (a UTF-8 byte order mark is skipped), no field twice in one object, bounded depth.
/// Errors read "file:line: reason" and, where there is one, the JSON pointer.
Result<Json> parse_json(std::string_view text, std::string_view file_name);

/// Line (from 1) on which the value or field at a JSON pointer begins, 0 if the text has none. Reads the text again: for errors.
int line_of(std::string_view text, const std::string& pointer);

/// One more step of a JSON pointer, escaped.
std::string pointer_to(const std::string& parent, std::string_view key);

}  // namespace w4moe
