// One whole layer on the lock-step device against the reference that rounds where the kernels round.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/lockstep/engine.hpp"
#include "runtime/reference/synthetic.hpp"
#include "tests/lockstep/support.hpp"
#include "tests/support/layers.hpp"

namespace w4moe::lockstep {

/// In-memory headers: (name as included, text).
using Headers = std::vector<std::pair<std::string, std::string>>;

struct LayerCase {
  Problem problem = test::small_problem(256, 64, 4);
  SyntheticOptions data;
  i64 tokens = 9;
  i64 max_tokens = 0;              ///< of the plan; 0: tokens
  std::optional<GemmTile> tile;    ///< in place of the planner's choice
  std::vector<std::string> pins;
  IdType id_type = IdType::i32;
  DType router_dtype = DType::f32;
  i64 row_padding_elems = 0;       ///< added to the row strides of x and of the output
  bool strange_ids = false;        ///< some ids outside 0..E-1
  std::vector<i64> ids;            ///< in place of made-up ones, [tokens][topk]
  std::vector<u8> fillings{0xff};  ///< of the scratch: a run with each, and all must give the same bits
  int times = 1;                   ///< runs in one stream, of which the last one's output counts
  i64 nan_token = -1;              ///< a token whose row is NaN
  Options device = test_options();
  Headers headers;                 ///< in place of files of templates/, for planted faults
};

/// The case with integers whose sums are exact in any order.
LayerCase exact(LayerCase c);

struct LayerResult {
  std::string error;               ///< a report; the rest is empty then
  std::vector<u16> out;            ///< bits of [tokens][H]
  std::vector<u16> mirror;
  i64 worst_ulp = 0;
  double relative_rmse = 0;        ///< against the mirror; infinite where one has a NaN or infinity and the other has not
  double milliseconds = 0;         ///< of the run, kernels being built
  std::string kernels;             ///< names of those that ran
};

/// A planned and packed layer whose kernels are built as runs ask for them.
class PreparedLayer {
 public:
  /// Takes of the case what does not change from run to run: problem, data, max_tokens, tile, pins, device, headers.
  explicit PreparedLayer(const LayerCase& c);
  /// Runs with the case's tokens, inputs and fillings.
  LayerResult run(const LayerCase& c);
  const Plan& plan() const { return plan_; }

 private:
  std::string run_once(const LayerCase& c, struct Tensors& tensors, u8 filling, LayerResult& result);

  std::string error_;
  Problem problem_;
  Plan plan_;
  SyntheticLayer layer_;
  std::shared_ptr<class Buffer> weights_;
  std::unique_ptr<LockstepEngine> engine_;
};

LayerResult run_layer(const LayerCase& c);

/// Whether a result is what the mirror says, bit for bit or within two units in the last place.
void check_result(const LayerResult& result, bool exact);

/// Runs the case and asks for the mirror's bits.
void check_exact(const LayerCase& c);

/// Runs the case and asks for what docs/numerics.md promises against the mirror: two units in the last place.
void check_close(const LayerCase& c);

}  // namespace w4moe::lockstep
