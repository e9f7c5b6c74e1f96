// One whole layer on the lock-step device: random weights in the packed layout, route -> fc1 -> fc2 -> combine, and a reference in
// double precision that rounds where the kernels store.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "contract/args.h"
#include "runtime/lockstep/device.hpp"
#include "tests/lockstep/buffer.hpp"

namespace w4moe::lockstep {

struct LayerCase {
  i64 hidden = 256;
  i64 intermediate = 64;
  i64 experts = 4;
  i64 topk = 2;
  i64 tokens = 9;
  QuantFormat format = kMxfp4;
  Activation activation = Activation::silu;
  DType dtype = DType::bf16;
  GemmTile tile{};
  ActivationParams params{};
  bool has_bias = false;
  bool weight_on_input = false;
  IdType id_type = IdType::i32;
  DType router_dtype = DType::f32;
  i64 x_padding_elems = 0;     ///< added to the row stride of x and of the output
  bool integers = false;       ///< small integers and scales of one: every sum is exact
  bool strange_ids = false;    ///< some ids outside 0..E-1
  i64 nan_token = -1;          ///< a token whose row is NaN
  std::uint64_t seed = 1;
};

/// In-memory headers: (name as included, text).
using Headers = std::vector<std::pair<std::string, std::string>>;

/// Logical weights of one projection.
struct Matrix {
  i64 rows = 0;
  i64 k = 0;
  std::vector<u8> codes;     ///< [E][rows][k]
  std::vector<u16> scales;   ///< [E][rows][groups], checkpoint encoding
  std::vector<u8> zeros;     ///< [E][rows][groups]
  std::vector<float> bias;   ///< [E][rows]
};

struct Layer {
  LayerCase c;
  Matrix gate;   ///< empty where ungated
  Matrix up;     ///< the one matrix of ungated layers
  Matrix down;
  WeightLayout layout;
  Buffer packed_fc1, packed_fc2, globals, fc1_bias, fc2_bias;
  Buffer x, ids, router;
  i64 x_stride = 0;

  double weight(const Matrix& m, i64 expert, i64 row, i64 k) const;
};

Layer make_layer(const LayerCase& c);

/// Runs the four kernels. The output is [tokens][hidden] in double; an empty vector with `error` set on a report.
struct LayerRun {
  std::vector<double> out;
  std::string error;
  double milliseconds = 0;
};
/// `headers` take the place of files of templates/, for planted faults.
LayerRun run_layer(LockstepDevice& device, const Layer& layer, const Headers& headers = {});

/// What the kernels should give: sums in double; h, route rows and the output rounded where they are stored.
std::vector<double> reference(const Layer& layer);

/// Largest relative root-mean-square error of an output row.
double worst_row_error(const Layer& layer, const std::vector<double>& got, const std::vector<double>& expected);

}  // namespace w4moe::lockstep
