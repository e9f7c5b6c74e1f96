// The files of costs beside this one, as text: defined in a source that the build generates.
#pragma once

#include <span>

#include "generator/render/embedded.hpp"

namespace w4moe::costs {

/// In the order of their names; alive as long as the program.
std::span<const render::EmbeddedFile> embedded_files();

}  // namespace w4moe::costs
