#include "runtime/lockstep/collectives.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace w4moe::lockstep {
namespace {

double value_of_bf16(std::uint32_t half) {
  const std::uint32_t bits = half << 16;
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}

double value_of_f16(std::uint32_t half) {
  const double sign = (half & 0x8000u) != 0 ? -1.0 : 1.0;
  const int field = static_cast<int>((half >> 10) & 0x1fu);
  const int fraction = static_cast<int>(half & 0x3ffu);
  if (field == 31) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (field == 0) return sign * fraction * 0x1p-24;
  const std::uint64_t bits = (static_cast<std::uint64_t>(half & 0x8000u) << 48) |
                             (static_cast<std::uint64_t>(field - 15 + 1023) << 52) | (static_cast<std::uint64_t>(fraction) << 42);
  double v;
  std::memcpy(&v, &bits, 8);
  return v;
}

template <double (*value_of)(std::uint32_t)>
void mma(MmaOperand* const (&lanes)[kWarpLanes]) {
  double a[16][16];
  double b[16][8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const Position p = mma_a_position(lane, i);
      a[p.row][p.column] = value_of((lanes[lane]->a[i / 2] >> (i % 2 * 16)) & 0xffffu);
    }
    for (int i = 0; i < 4; ++i) {
      const Position p = mma_b_position(lane, i);
      b[p.row][p.column] = value_of((lanes[lane]->b[i / 2] >> (i % 2 * 16)) & 0xffffu);
    }
  }
  // Products of 16-bit values are exact in a double; they are added in ascending k, then to the accumulator, and rounded once.
  double sum[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      const double factor = a[row][k];
      for (int column = 0; column < 8; ++column) sum[row][column] += factor * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Position p = mma_d_position(lane, i);
      lanes[lane]->d[i] = static_cast<float>(sum[p.row][p.column] + lanes[lane]->d[i]);
    }
  }
}

void load_matrix(MatrixOperand* const (&lanes)[kWarpLanes]) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      lanes[lane]->result[matrix] = lanes[8 * matrix + lane / 4]->row[lane % 4];
    }
  }
}

int source_lane(WarpOp op, int lane, unsigned argument) {
  switch (op) {
    case WarpOp::shuffle_up: return argument > static_cast<unsigned>(lane) ? lane : lane - static_cast<int>(argument);
    case WarpOp::shuffle_xor: return (lane ^ static_cast<int>(argument)) & (kWarpLanes - 1);
    default: return static_cast<int>(argument) & (kWarpLanes - 1);
  }
}

template <class Operand>
void cast(void* const (&from)[kWarpLanes], Operand* (&to)[kWarpLanes]) {
  for (int lane = 0; lane < kWarpLanes; ++lane) to[lane] = static_cast<Operand*>(from[lane]);
}

}  // namespace

const char* name_of(WarpOp op) {
  switch (op) {
    case WarpOp::none: return "nothing";
    case WarpOp::warp_sync: return "warp_sync";
    case WarpOp::shuffle_up: return "shuffle_up";
    case WarpOp::shuffle_xor: return "shuffle_xor";
    case WarpOp::shuffle: return "shuffle";
    case WarpOp::load_matrix: return "load_matrix_x4";
    case WarpOp::mma_bf16: return "mma_16816<bf16>";
    case WarpOp::mma_f16: return "mma_16816<f16>";
  }
  return "unknown";
}

void perform(WarpOp op, void* const (&operands)[kWarpLanes]) {
  switch (op) {
    case WarpOp::none:
    case WarpOp::warp_sync: return;
    case WarpOp::shuffle_up:
    case WarpOp::shuffle_xor:
    case WarpOp::shuffle: {
      ShuffleOperand* lanes[kWarpLanes];
      cast(operands, lanes);
      for (int lane = 0; lane < kWarpLanes; ++lane) {
        lanes[lane]->result = lanes[source_lane(op, lane, lanes[lane]->argument)]->value;
      }
      return;
    }
    case WarpOp::load_matrix: {
      MatrixOperand* lanes[kWarpLanes];
      cast(operands, lanes);
      return load_matrix(lanes);
    }
    case WarpOp::mma_bf16:
    case WarpOp::mma_f16: {
      MmaOperand* lanes[kWarpLanes];
      cast(operands, lanes);
      return op == WarpOp::mma_bf16 ? mma<value_of_bf16>(lanes) : mma<value_of_f16>(lanes);
    }
  }
}

}  // namespace w4moe::lockstep
