// Whole files, and "-" for standard input.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "w4moe/error.hpp"

namespace w4moe::cli {

/// The bytes of a file; "-" reads standard input. io, naming the file and the system's reason.
Result<std::string> read_text(const std::string& path);
Result<std::vector<std::byte>> read_bytes(const std::string& path);

/// Writes a file; its folder must exist.
Status write_text(const std::string& path, std::string_view text);

/// Makes a folder and its parents.
Status make_folder(const std::string& path);

}  // namespace w4moe::cli
