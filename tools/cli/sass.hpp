// Machine code as text, by the disassembler of a CUDA toolkit.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "w4moe/error.hpp"

namespace w4moe::cli {

/// toolchain_missing where neither nvdisasm nor cuobjdump is on PATH.
Result<std::string> disassemble(std::span<const std::byte> cubin);

}  // namespace w4moe::cli
