// What the build step tools/embed makes of templates/: defined in a generated source.
#pragma once

#include <span>
#include <string_view>

namespace w4moe::render {

struct EmbeddedFile {
  std::string_view path;  ///< relative to templates/, as an #include names it
  std::string_view text;
};

/// In the order of their paths; alive as long as the program.
std::span<const EmbeddedFile> embedded_files();

}  // namespace w4moe::render
