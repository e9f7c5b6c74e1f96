// Which lines two texts do not share, for people.
#pragma once

#include <string>

namespace w4moe::cli {

/// "- " before each line that only `left` has, "+ " before each that only `right` has, in the order of the texts; lines that both
/// have are left out. Ends with a line end unless empty.
std::string line_diff(const std::string& left, const std::string& right);

}  // namespace w4moe::cli
