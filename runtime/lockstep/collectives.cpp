#include "runtime/lockstep/collectives.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace w4moe::lockstep {

double bf16_value(std::uint32_t half) {
  const std::uint32_t bits = half << 16;
  float v;
  std::memcpy(&v, &bits, 4);
  return v;
}

double f16_value(std::uint32_t half) {
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

namespace {

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

/// Lane l holds rows 2 (l % 4) and the next of column l / 4 of each matrix; row r of matrix m goes to lane 8 m + r.
void store_matrix(StoreMatrixOperand* const (&lanes)[kWarpLanes]) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int matrix = lane / 8;
    const int row = lane % 8;
    for (int pair = 0; pair < 4; ++pair) {
      const auto half = [&](int column) { return lanes[4 * column + row / 2]->value[matrix] >> (row % 2 * 16) & 0xffffu; };
      lanes[lane]->row[pair] = half(2 * pair) | half(2 * pair + 1) << 16;
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
    case WarpOp::ballot: return "ballot";
    case WarpOp::load_matrix: return "load_matrix_x4";
    case WarpOp::mma_bf16: return "mma_16816<bf16>";
    case WarpOp::mma_f16: return "mma_16816<f16>";
    case WarpOp::store_matrix: return "store_matrix_x4_transposed";
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
    case WarpOp::ballot: {
      ShuffleOperand* lanes[kWarpLanes];
      cast(operands, lanes);
      unsigned bits = 0;
      for (int lane = 0; lane < kWarpLanes; ++lane) bits |= (lanes[lane]->value != 0 ? 1u : 0u) << lane;
      for (int lane = 0; lane < kWarpLanes; ++lane) lanes[lane]->result = bits;
      return;
    }
    case WarpOp::load_matrix: {
      MatrixOperand* lanes[kWarpLanes];
      cast(operands, lanes);
      return load_matrix(lanes);
    }
    case WarpOp::store_matrix: {
      StoreMatrixOperand* lanes[kWarpLanes];
      cast(operands, lanes);
      return store_matrix(lanes);
    }
    case WarpOp::mma_bf16:
    case WarpOp::mma_f16: {
      MmaOperand* lanes[kWarpLanes];
      cast(operands, lanes);
      return op == WarpOp::mma_bf16 ? mma<bf16_value>(lanes) : mma<f16_value>(lanes);
    }
  }
}

}  // namespace w4moe::lockstep
