// A whole file in memory, read-only.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "w4moe/error.hpp"

namespace w4moe {

struct MappedFile {
  std::shared_ptr<const void> owner;  ///< unmaps with its last copy
  std::span<const std::byte> bytes;
};

Result<MappedFile> map_file(const std::string& path);

/// Writes `parts` one after another to a file beside `path` and renames it when all are written, so that a reader never sees half.
Status write_file(const std::string& path, std::span<const std::span<const std::byte>> parts);

}  // namespace w4moe
