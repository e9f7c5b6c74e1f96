// Cuts a tile of the rule table down to what a matrix has and a device holds.
#pragma once

#include <string>

#include "contract/variant.h"
#include "w4moe/device.hpp"

namespace w4moe {

struct FittedTile {
  GemmTile tile;
  std::string changes;   ///< what was reduced and why, "" where the table's tile fits as it is
};

/// The tile for `matrix` on `device`: rows no taller than the matrix; stages, then units, then strips
/// within the shared memory of one CTA and of min_ctas_per_sm together. Refuses where even the smallest form does not fit.
Result<FittedTile> fit_tile(const GemmTile& wanted, const MatrixLayout& matrix, const DeviceSpec& device);

struct FittedWgmmaTile {
  WgmmaTile tile;
  std::string changes;
};

/// The tile for a kernel of the wgmma family: stages within the shared memory of one CTA; units with larger scales leave room for
/// fewer. Refuses where fewer than kMinWgmmaStages fit.
Result<FittedWgmmaTile> fit_tile(const WgmmaTile& wanted, const Variant& kernel, const DeviceSpec& device);

}  // namespace w4moe
