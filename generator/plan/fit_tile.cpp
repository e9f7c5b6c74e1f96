#include "generator/plan/fit_tile.hpp"

#include "generator/plan/rules.hpp"
#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

bool fits_cta(const GemmTile& tile, const DeviceSpec& device) { return tile.shared_bytes() <= device.shared_optin_bytes; }

bool fits_sm(const GemmTile& tile, const DeviceSpec& device) {
  const i64 ctas = tile.min_ctas_per_sm;
  return ctas * (tile.shared_bytes() + kReservedSharedBytesPerCta) <= device.shared_per_sm_bytes &&
         ctas * tile.threads() <= device.max_threads_per_sm;
}

/// Fewer stages first, then fewer units with all stages again, then fewer strips (the partial sums of all rows need room too).
/// False where nothing fits.
bool shrink_to_device(GemmTile& tile, const DeviceSpec& device) {
  GemmTile trial = tile;
  for (; trial.strips_per_warp >= 1; trial.strips_per_warp /= 2) {
    for (trial.units_per_warp = tile.units_per_warp; trial.units_per_warp >= 1; trial.units_per_warp /= 2) {
      for (trial.stages = tile.stages; trial.stages >= kMinStages; --trial.stages) {
        if (fits_cta(trial, device) && fits_sm(trial, device)) {
          tile = trial;
          return true;
        }
      }
    }
  }
  return false;
}

void note_change(std::string& changes, const char* what, i64 from, i64 to, const std::string& why) {
  if (from == to) return;
  if (!changes.empty()) changes += "; ";
  changes += fmt::format("{} {} -> {}, {}", what, from, to, why);
}

}  // namespace

Result<FittedTile> fit_tile(const GemmTile& wanted, const MatrixLayout& matrix, const DeviceSpec& device) {
  const i64 strips = matrix.strips();
  FittedTile fitted{wanted, {}};
  GemmTile& tile = fitted.tile;
  while (tile.tile_strips() > strips && tile.strips_per_warp > 1) tile.strips_per_warp /= 2;
  while (tile.tile_strips() > strips && tile.warps_rows > 1) tile.warps_rows /= 2;
  const i64 matrix_rows = tile.tile_rows();
  note_change(fitted.changes, "tile rows", wanted.tile_rows(), matrix_rows,
              fmt::format("the matrix has {} strips of {} rows", strips, kStripRows));

  // A short last group of strips makes the unit stride a run-time value, which costs the registers of a fifth CTA.
  if (!matrix.groups_are_whole() && tile.min_ctas_per_sm > 4) tile.min_ctas_per_sm = 4;

  while (!shrink_to_device(tile, device)) {
    if (tile.min_ctas_per_sm == 1) {
      return unsupported("device {}: {} bytes of shared memory per CTA do not hold a tile of {} routes (needs {})", device.name,
                         device.shared_optin_bytes, tile.block_rows, tile.shared_bytes());
    }
    --tile.min_ctas_per_sm;
  }
  const std::string why = fmt::format("to fit {} bytes of shared memory per CTA and {} per SM", device.shared_optin_bytes,
                                      device.shared_per_sm_bytes);
  note_change(fitted.changes, "tile rows", matrix_rows, tile.tile_rows(), why);
  note_change(fitted.changes, "stages", wanted.stages, tile.stages, why);
  note_change(fitted.changes, "units per warp", wanted.units_per_warp, tile.units_per_warp, why);
  note_change(fitted.changes, "CTAs per SM", wanted.min_ctas_per_sm, tile.min_ctas_per_sm, why);
  return fitted;
}

Result<FittedWgmmaTile> fit_tile(const WgmmaTile& wanted, const Variant& kernel, const DeviceSpec& device) {
  const i64 unit_bytes = kernel.matrix().unit().unit_bytes();
  FittedWgmmaTile fitted{wanted, {}};
  while (fitted.tile.shared_bytes(unit_bytes) > device.shared_optin_bytes) {
    if (fitted.tile.stages == kMinWgmmaStages) {
      return unsupported("device {}: {} bytes of shared memory per CTA do not hold a tile of {} routes (needs {})", device.name,
                         device.shared_optin_bytes, wanted.max_width(), fitted.tile.shared_bytes(unit_bytes));
    }
    --fitted.tile.stages;
  }
  note_change(fitted.changes, "stages", wanted.stages, fitted.tile.stages,
              fmt::format("to fit {} bytes of shared memory per CTA", device.shared_optin_bytes));
  return fitted;
}

}  // namespace w4moe
