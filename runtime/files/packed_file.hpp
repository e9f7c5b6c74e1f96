// The form of packed files; docs/formats/packed.md has it in words.
#pragma once

#include <string>

#include "w4moe/checkpoint.hpp"

namespace w4moe {

/// Value of the metadata "w4moe.packed". A reader refuses others.
inline constexpr std::string_view kPackedVersion = "1";

/// A layer's entry in the metadata, as JSON.
std::string packed_entry(const CheckpointLayer& layer);

/// Reads an entry back, without its bytes. Every field must be there.
Result<PackedLayer> parse_packed_entry(const std::string& prefix, const std::string& text);

/// The layers of a file that has been read; their bytes point into it.
Result<std::vector<PackedLayer>> packed_layers(const class SafetensorsFile& file);

}  // namespace w4moe
