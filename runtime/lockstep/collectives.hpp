// What the collective instructions compute, once all 32 lanes have brought their operands.
#pragma once

#include <cstdint>

#include "runtime/lockstep/abi.h"

namespace w4moe::lockstep {

inline constexpr int kWarpLanes = 32;

/// Exact values of 16-bit floats.
double bf16_value(std::uint32_t half);
double f16_value(std::uint32_t half);

/// "shuffle_up", "load_matrix_x4", ...
const char* name_of(WarpOp op);

/// Operand of every lane, of the struct that abi.h names for the operation. Results go where the operands say.
void perform(WarpOp op, void* const (&operands)[kWarpLanes]);

/// Element positions of mma.m16n8k16 as the PTX manual's figures give them. i counts a lane's elements in register order, low half
/// of a register first.
struct Position {
  int row;
  int column;
};
constexpr Position mma_a_position(int lane, int i) {  // 8 elements; 16 x 16, column = k
  return {lane / 4 + ((i / 2) % 2 == 1 ? 8 : 0), 2 * (lane % 4) + i % 2 + (i >= 4 ? 8 : 0)};
}
constexpr Position mma_b_position(int lane, int i) {  // 4 elements; 16 x 8, row = k
  return {2 * (lane % 4) + i % 2 + (i >= 2 ? 8 : 0), lane / 4};
}
constexpr Position mma_d_position(int lane, int i) {  // 4 elements; 16 x 8
  return {lane / 4 + (i >= 2 ? 8 : 0), 2 * (lane % 4) + i % 2};
}

}  // namespace w4moe::lockstep
