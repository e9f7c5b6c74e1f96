// The host backend's headers, carried inside the library as the templates are, so that an installed program needs no source tree.
#pragma once

#include <span>

#include "generator/render/embedded.hpp"

namespace w4moe::lockstep {

/// "ops_host.h" and "abi.h".
std::span<const render::EmbeddedFile> embedded_files();

}  // namespace w4moe::lockstep
