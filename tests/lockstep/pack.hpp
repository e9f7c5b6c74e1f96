// The packed layout of a test layer, written from the contract's functions alone.
#pragma once

namespace w4moe::lockstep {

struct Layer;

/// Fills the packed buffers of a layer from its logical matrices.
void pack_layer(Layer& layer);

}  // namespace w4moe::lockstep
