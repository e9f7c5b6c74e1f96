// Made-up layers and inputs: the same numbers for the same seed on every machine, in whichever checkpoint layout is asked for.
// Used by tests, by the command line's `run` without files, and by benchmarks.
#pragma once

#include <optional>

#include "runtime/reference/moe_inputs.hpp"
#include "w4moe/weights.hpp"

namespace w4moe {

enum class SyntheticData : u8 {
  random,          ///< uniform codes; MXFP4 bytes 117..121, NVFP4 bytes 0x30..0x40 with globals .005..0.015; x normal
  small_integers,  ///< few small multiples of 1/2 with power-of-two scales, so that fp32 sums of any order are exact
};

struct SyntheticOptions {
  u64 seed = 1;
  SyntheticData data = SyntheticData::random;
  GateUpOrder gate_up_order = GateUpOrder::gate_first;  ///< ungated layers are always separate
  CodeOrder code_order = CodeOrder::low_nibble_first;
  CodeSign code_sign = CodeSign::offset8;
  ScaleLayout scale_layout = ScaleLayout::row_major;
  ZeroOrder zero_order = ZeroOrder::bytes;               ///< where the format has zero points
  GlobalConvention global_convention = GlobalConvention::multiply;  ///< NVFP4; other formats have no globals
  bool per_expert_tensors = false;                       ///< one tensor per expert instead of stacked ones
  bool code_words = false;                               ///< codes as i32 [rows][k / 8]
  SourceType bias_type = SourceType::bf16;
  u8 mx_first_byte = 117;                                ///< MXFP4, random data: smallest and largest scale byte
  u8 mx_last_byte = 121;
  std::optional<float> gate_bias;                        ///< every gate bias is this: large values saturate the gate
};

/// The numbers themselves, before any layout: pure functions of (options.seed, options.data, problem, place).
class SyntheticNumbers {
 public:
  SyntheticNumbers(const Problem& problem, const SyntheticOptions& options) : problem_(problem), options_(options) {}

  /// Codes of columns 16 chunk .. 16 chunk + 15 of a row, 4 bits each from bit 0.
  u64 code_chunk(i64 expert, Projection projection, i64 row, i64 chunk) const;
  u32 code(i64 expert, Projection projection, i64 row, i64 k) const;
  u32 scale_bits(i64 expert, Projection projection, i64 row, i64 group) const;
  u32 zero(i64 expert, Projection projection, i64 row, i64 group) const;  ///< 8 without zero points
  u32 bias_bits(i64 expert, Projection projection, i64 row) const;        ///< in options.bias_type
  float global(i64 expert, Projection projection) const;                  ///< as a factor; 1 without globals

 private:
  u64 key(u32 what, i64 expert, Projection projection, i64 row) const;

  Problem problem_;
  SyntheticOptions options_;
};

/// A layer with the memory its tensors lie in. Movable; the tensors stay where they are.
struct SyntheticLayer {
  SourceWeights source;
  std::vector<std::vector<std::byte>> storage;
};

/// The problem must be valid, and the options fit its format.
SyntheticLayer make_layer(const Problem& problem, const SyntheticOptions& options = {});

/// Tokens, distinct experts (as far as there are enough) and router weights that add up to 1.
struct SyntheticInputs {
  std::vector<u16> x;             ///< [tokens][H] in the problem's dtype
  std::vector<i32> ids;           ///< [tokens][k]
  std::vector<i64> ids64;         ///< the same, when asked for
  std::vector<float> weights;     ///< [tokens][k]
  std::vector<u16> weights_bf16;  ///< the same rounded, when asked for
  MoeInputs inputs;               ///< points into the vectors above
};

/// small_integers data gives x in {-1, 0, 1} (one in eight nonzero) and router weights 1/2, 1 or 2.
SyntheticInputs make_inputs(const Problem& problem, i64 tokens, const SyntheticOptions& options = {}, IdType id_type = IdType::i32,
                            DType router_dtype = DType::f32);

}  // namespace w4moe
