#include "runtime/reference/synthetic.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/weights/float_bits.hpp"
#include "runtime/weights/operand.hpp"

namespace w4moe {
namespace {

enum Stream : u32 { kCodes, kScales, kZeros, kBias, kGlobal, kTokens, kRoutes, kRouterWeights };

/// The finaliser of a well-known 64-bit generator (splitmix): every bit of the result depends on every bit of v.
u64 mix(u64 v) {
  v += 0x9e3779b97f4a7c15ull;
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
  return v ^ (v >> 31);
}

u64 mix(u64 a, u64 b) { return mix(a ^ mix(b)); }

/// Uniform in 0..count-1.
u32 pick(u64 bits, u32 count) { return static_cast<u32>(((bits >> 32) * count) >> 32); }

/// Near normal: a sum of twelve 16-bit uniforms, so that no library function can make two machines differ.
float normal(u64 seed) {
  i64 sum = 0;
  for (u64 i = 0; i < 3; ++i) {
    const u64 bits = mix(seed, i);
    for (i32 part = 0; part < 4; ++part) sum += static_cast<i64>((bits >> (16 * part)) & 0xffffu);
  }
  return static_cast<float>(sum - 6 * 65535) / 65535.0f;
}

float unit_interval(u64 bits) { return static_cast<float>(bits >> 40) / 16777216.0f; }

}  // namespace

u64 SyntheticNumbers::key(u32 what, i64 expert, Projection projection, i64 row) const {
  return mix(mix(mix(options_.seed, what), static_cast<u64>(expert) * 4 + static_cast<u64>(projection)), static_cast<u64>(row));
}

u64 SyntheticNumbers::code_chunk(i64 expert, Projection projection, i64 row, i64 chunk) const {
  const u64 bits = mix(key(kCodes, expert, projection, row) + static_cast<u64>(chunk) * 0x9e3779b97f4a7c15ull);
  if (options_.data == SyntheticData::random) return bits;
  // +-0, +-1/2, +-1 for FP4; zero point - 1, + 0, + 1 for INT4.
  constexpr u64 kFp4 = 0xaa9922110a912800ull;
  u64 codes = 0;
  for (i64 i = 0; i < 16; ++i) {
    const u64 nibble = (bits >> (4 * i)) & 15u;
    u64 code = (kFp4 >> (4 * nibble)) & 15u;
    if (problem_.format.is_int4()) {
      const i64 k = 16 * chunk + i;
      const i64 columns = projection == Projection::down ? problem_.shape.intermediate : problem_.shape.hidden;
      code = k < columns ? zero(expert, projection, row, problem_.format.group_of(k)) + nibble % 3 - 1 : 0;
    }
    codes |= code << (4 * i);
  }
  return codes;
}

u32 SyntheticNumbers::code(i64 expert, Projection projection, i64 row, i64 k) const {
  return static_cast<u32>(code_chunk(expert, projection, row, k / 16) >> (4 * (k % 16))) & 15u;
}

u32 SyntheticNumbers::scale_bits(i64 expert, Projection projection, i64 row, i64 group) const {
  const u64 bits = mix(key(kScales, expert, projection, row), static_cast<u64>(group));
  const bool small = options_.data == SyntheticData::small_integers;
  switch (problem_.format.scale) {
    case ScaleType::e8m0:
      if (small) return 127 + pick(bits, 2);
      return options_.mx_first_byte + pick(bits, static_cast<u32>(options_.mx_last_byte - options_.mx_first_byte + 1));
    case ScaleType::e4m3: return small ? 0x38 + 8 * pick(bits, 2) : 0x30 + pick(bits, 17);
    case ScaleType::bf16: return small ? 0x3f80 + 0x80 * pick(bits, 2) : 0x3c80 + pick(bits, 0x100);  // 2^-6 .. 2^-4
    case ScaleType::f16: return small ? 0x3c00 + 0x400 * pick(bits, 2) : 0x2400 + pick(bits, 0x800);
  }
  return 0;
}

u32 SyntheticNumbers::zero(i64 expert, Projection projection, i64 row, i64 group) const {
  if (!problem_.format.has_zero_point) return kInt4SymmetricZero;
  const u64 bits = mix(key(kZeros, expert, projection, row), static_cast<u64>(group));
  return options_.data == SyntheticData::random ? pick(bits, 16) : 1 + pick(bits, 14);
}

u32 SyntheticNumbers::bias_bits(i64 expert, Projection projection, i64 row) const {
  const u64 bits = mix(key(kBias, expert, projection, row));
  float value = options_.data == SyntheticData::random ? unit_interval(bits) - 0.5f : static_cast<float>(pick(bits, 5)) - 2.0f;
  if (projection == Projection::gate && options_.gate_bias) value = *options_.gate_bias;
  switch (options_.bias_type) {
    case SourceType::f32: return std::bit_cast<u32>(value);
    case SourceType::f16: return f16_of(value);
    default: return bf16_of(value);
  }
}

float SyntheticNumbers::global(i64 expert, Projection projection) const {
  if (!problem_.format.is_nvfp4() || options_.global_convention == GlobalConvention::none) return 1.0f;
  const u64 bits = mix(key(kGlobal, expert, projection, 0));
  if (options_.data == SyntheticData::small_integers) return pick(bits, 2) == 0 ? 1.0f : 0.5f;
  return 0.005f + 0.01f * unit_interval(bits);
}

namespace {

/// Writes the tensors of one matrix of the source.
class MatrixWriter {
 public:
  MatrixWriter(const Problem& problem, const SyntheticOptions& options, SyntheticLayer& layer)
      : problem_(problem), options_(options), numbers_(problem, options), layer_(layer) {}

  void write(SourceMatrix& matrix, Projection only, bool fused, bool has_bias) {
    only_ = only;
    fused_ = fused;
    const bool is_down = only == Projection::down;
    k_ = is_down ? problem_.shape.intermediate : problem_.shape.hidden;
    rows_ = is_down ? problem_.shape.hidden : fused ? 2 * problem_.shape.intermediate : problem_.shape.intermediate;
    groups_ = problem_.format.groups(k_);
    write_codes(matrix.codes);
    write_scales(matrix.scales);
    if (problem_.format.has_zero_point) write_zeros(matrix.zeros);
    if (has_bias) write_bias(matrix.bias);
  }

 private:
  struct Place {
    Projection projection;
    i64 row;
  };

  /// What tensor row `row` of this matrix holds.
  Place place(i64 row) const {
    if (!fused_) return {only_, row};
    const i64 half = problem_.shape.intermediate;
    switch (options_.gate_up_order) {
      case GateUpOrder::gate_first: return row < half ? Place{Projection::gate, row} : Place{Projection::up, row - half};
      case GateUpOrder::up_first: return row < half ? Place{Projection::up, row} : Place{Projection::gate, row - half};
      default: return row % 2 == 0 ? Place{Projection::gate, row / 2} : Place{Projection::up, row / 2};
    }
  }

  /// Makes the tensors of an operand with `dims` per expert; returns where each expert's begins.
  std::vector<u8*> allocate(SourceOperand& operand, SourceType type, std::vector<i64> dims) {
    const i64 experts = problem_.shape.experts;
    const i64 bytes = std::accumulate(dims.begin(), dims.end(), source_type_bytes(type), std::multiplies<>());
    std::vector<u8*> begins;
    if (options_.per_expert_tensors) {
      for (i64 expert = 0; expert < experts; ++expert) {
        begins.push_back(new_block(bytes));
        operand.push_back(SourceTensor{begins.back(), type, dims, {}});
      }
      return begins;
    }
    u8* const block = new_block(experts * bytes);
    for (i64 expert = 0; expert < experts; ++expert) begins.push_back(block + expert * bytes);
    dims.insert(dims.begin(), experts);
    operand.push_back(SourceTensor{block, type, std::move(dims), {}});
    return begins;
  }

  u8* new_block(i64 bytes) {
    layer_.storage.emplace_back(static_cast<std::size_t>(bytes));
    return reinterpret_cast<u8*>(layer_.storage.back().data());
  }

  void write_awq_codes(SourceOperand& operand) {
    const std::vector<u8*> begins = allocate(operand, SourceType::i32, {word_rows(rows_), k_});
    constexpr i64 kNibbles[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (i64 expert = 0; expert < problem_.shape.experts; ++expert) {
      for (i64 row = 0; row < rows_; ++row) {
        const Place at = place(row);
        const i64 nibble = kNibbles[row % 8];
        u8* const to = begins[static_cast<std::size_t>(expert)] + (row / 8 * k_) * 4 + nibble / 2;
        for (i64 k = 0; k < k_; ++k) to[4 * k] |= static_cast<u8>(numbers_.code(expert, at.projection, at.row, k) << (nibble % 2 * 4));
      }
    }
  }

  void write_codes(SourceOperand& operand) {
    if (options_.code_order == CodeOrder::awq_words) return write_awq_codes(operand);
    const bool words = options_.code_words;
    const std::vector<u8*> begins = allocate(operand, words ? SourceType::i32 : SourceType::u8,
                                             {rows_, words ? code_word_columns(k_) : code_byte_columns(k_)});
    const i64 row_bytes = code_byte_columns(k_);
    for (i64 expert = 0; expert < problem_.shape.experts; ++expert) {
      for (i64 row = 0; row < rows_; ++row) {
        const Place at = place(row);
        u8* const to = begins[static_cast<std::size_t>(expert)] + row * row_bytes;
        for (i64 byte = 0; byte < row_bytes; byte += 8) {
          u64 codes = numbers_.code_chunk(expert, at.projection, at.row, byte / 8);
          if (problem_.format.is_int4() && options_.code_sign == CodeSign::twos_complement) codes ^= 0x8888888888888888ull;
          if (options_.code_order == CodeOrder::high_nibble_first) {
            constexpr u64 kLow = 0x0f0f0f0f0f0f0f0full;
            codes = ((codes >> 4) & kLow) | ((codes & kLow) << 4);
          }
          std::memcpy(to + byte, &codes, static_cast<std::size_t>(std::min<i64>(8, row_bytes - byte)));
        }
      }
    }
  }

  void write_scales(SourceOperand& operand) {
    const i64 bytes = problem_.format.scale_bytes();
    const SourceType type = problem_.format.scale == ScaleType::e8m0   ? SourceType::u8
                            : problem_.format.scale == ScaleType::e4m3 ? SourceType::e4m3
                            : problem_.format.scale == ScaleType::bf16 ? SourceType::bf16
                                                                       : SourceType::f16;
    std::vector<i64> dims{rows_, groups_};
    if (options_.scale_layout == ScaleLayout::transposed) dims = {groups_, rows_};
    if (options_.scale_layout == ScaleLayout::swizzled_128x4) dims = {(rows_ + 127) / 128 * 128, (groups_ + 3) / 4 * 4};  // lint: one-definition: a layout of files, written here by its definition so that tests compare two ways
    const i64 padded = dims[1];
    const std::vector<u8*> begins = allocate(operand, type, dims);
    for (i64 expert = 0; expert < problem_.shape.experts; ++expert) {
      for (i64 row = 0; row < rows_; ++row) {
        const Place at = place(row);
        for (i64 group = 0; group < groups_; ++group) {
          i64 index = row * groups_ + group;
          if (options_.scale_layout == ScaleLayout::transposed) index = group * rows_ + row;
          if (options_.scale_layout == ScaleLayout::swizzled_128x4) {
            const i64 block = row / 128;
            const i64 inner = row % 128;
            index = (((block * (padded / 4) + group / 4) * 32 + inner % 32) * 4 + inner / 32) * 4 + group % 4;
          }
          const u32 bits = numbers_.scale_bits(expert, at.projection, at.row, group);
          std::memcpy(begins[static_cast<std::size_t>(expert)] + index * bytes, &bits, static_cast<std::size_t>(bytes));
        }
      }
    }
  }

  void write_zeros(SourceOperand& operand) {
    const bool awq = options_.zero_order == ZeroOrder::awq_words;
    const bool along_rows = awq || options_.zero_order == ZeroOrder::nibbles_along_rows;
    const bool bytes = options_.zero_order == ZeroOrder::bytes;
    const bool high_first = options_.zero_order == ZeroOrder::nibbles_along_groups_high_first;
    std::vector<i64> dims{rows_, bytes ? groups_ : zero_byte_columns(groups_)};
    if (along_rows) dims = {word_rows(rows_), groups_};
    const std::vector<u8*> begins = allocate(operand, along_rows ? SourceType::i32 : SourceType::u8, dims);
    for (i64 expert = 0; expert < problem_.shape.experts; ++expert) {
      u8* const to = begins[static_cast<std::size_t>(expert)];
      for (i64 row = 0; row < rows_; ++row) {
        const Place at = place(row);
        for (i64 group = 0; group < groups_; ++group) {
          const u32 zero = numbers_.zero(expert, at.projection, at.row, group);
          if (bytes) {
            to[row * groups_ + group] = static_cast<u8>(zero);
          } else if (along_rows) {
            const i64 nibble = awq ? row % 8 / 2 + row % 2 * 4 : row % 8;
            to[(row / 8 * groups_ + group) * 4 + nibble / 2] |= static_cast<u8>(zero << (nibble % 2 * 4));
          } else {
            to[row * dims[1] + group / 2] |= static_cast<u8>(zero << ((group % 2 == 1) != high_first ? 4 : 0));
          }
        }
      }
    }
  }

  void write_bias(SourceOperand& operand) {
    const i64 bytes = source_type_bytes(options_.bias_type);
    const std::vector<u8*> begins = allocate(operand, options_.bias_type, {rows_});
    for (i64 expert = 0; expert < problem_.shape.experts; ++expert) {
      for (i64 row = 0; row < rows_; ++row) {
        const Place at = place(row);
        const u32 bits = numbers_.bias_bits(expert, at.projection, at.row);
        std::memcpy(begins[static_cast<std::size_t>(expert)] + row * bytes, &bits, static_cast<std::size_t>(bytes));
      }
    }
  }

  const Problem& problem_;
  const SyntheticOptions& options_;
  SyntheticNumbers numbers_;
  SyntheticLayer& layer_;
  Projection only_ = Projection::down;
  bool fused_ = false;
  i64 rows_ = 0;
  i64 k_ = 0;
  i64 groups_ = 0;
};

}  // namespace

SyntheticLayer make_layer(const Problem& problem, const SyntheticOptions& asked) {
  SyntheticOptions options = asked;
  const bool gated = is_gated(problem.activation);
  if (!gated) options.gate_up_order = GateUpOrder::separate;
  if (!problem.format.is_nvfp4()) options.global_convention = GlobalConvention::none;

  SyntheticLayer layer;
  SourceWeights& source = layer.source;
  source.gate_up_order = options.gate_up_order;
  source.code_order = options.code_order;
  source.code_sign = options.code_sign;
  source.scale_layout = options.scale_layout;
  source.zero_order = problem.format.has_zero_point ? options.zero_order : ZeroOrder::none;
  source.global_convention = options.global_convention;

  MatrixWriter writer(problem, options, layer);
  if (options.gate_up_order != GateUpOrder::separate) {
    writer.write(source.gate_up, Projection::gate, true, problem.has_bias);
  } else {
    if (gated) writer.write(source.gate, Projection::gate, false, problem.has_bias);
    writer.write(source.up, Projection::up, false, problem.has_bias);
  }
  writer.write(source.down, Projection::down, false, problem.has_bias);

  if (options.global_convention == GlobalConvention::none) return layer;
  const SyntheticNumbers numbers(problem, options);
  const auto stored = [&](i64 expert, Projection projection) {
    const float factor = numbers.global(expert, projection);
    return options.global_convention == GlobalConvention::reciprocal ? 1.0f / factor : factor;
  };
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    if (gated) source.gate_global.push_back(stored(expert, Projection::gate));
    source.up_global.push_back(stored(expert, Projection::up));
    source.down_global.push_back(stored(expert, Projection::down));
  }
  return layer;
}

SyntheticInputs make_inputs(const Problem& problem, i64 tokens, const SyntheticOptions& options, IdType id_type, DType router_dtype) {
  const i64 hidden = problem.shape.hidden;
  const i64 topk = problem.shape.topk;
  const i64 experts = problem.shape.experts;
  const bool small = options.data == SyntheticData::small_integers;
  SyntheticInputs made;
  for (i64 i = 0; i < tokens * hidden; ++i) {
    const u64 bits = mix(mix(options.seed, kTokens), static_cast<u64>(i));
    constexpr float kSmall[] = {-1.0f, 1.0f};
    const float value = !small ? normal(bits) : pick(bits, 8) == 0 ? kSmall[bits & 1] : 0.0f;
    made.x.push_back(bits_of(problem.dtype, value));
  }
  std::vector<std::pair<u64, i32>> order(static_cast<std::size_t>(experts));
  for (i64 token = 0; token < tokens; ++token) {
    for (i64 expert = 0; expert < experts; ++expert) {
      const u64 score = mix(mix(mix(options.seed, kRoutes), static_cast<u64>(token)), static_cast<u64>(expert));
      order[static_cast<std::size_t>(expert)] = {score, static_cast<i32>(expert)};
    }
    std::sort(order.begin(), order.end());
    float sum = 0;
    const std::size_t first = made.weights.size();
    for (i64 j = 0; j < topk; ++j) {
      made.ids.push_back(order[static_cast<std::size_t>(j % experts)].second);
      const u64 bits = mix(mix(options.seed, kRouterWeights), static_cast<u64>(token * topk + j));
      constexpr float kSmall[] = {0.5f, 1.0f, 2.0f};
      made.weights.push_back(small ? kSmall[pick(bits, 3)] : unit_interval(bits) + 0.1f);
      sum += made.weights.back();
    }
    for (std::size_t i = first; !small && i < made.weights.size(); ++i) made.weights[i] /= sum;
  }
  made.inputs = MoeInputs{tokens, made.x.data(), hidden, made.ids.data(), id_type, topk, made.weights.data(), router_dtype, topk};
  if (id_type == IdType::i64) {
    made.ids64.assign(made.ids.begin(), made.ids.end());
    made.inputs.ids = made.ids64.data();
  }
  if (router_dtype == DType::bf16) {
    for (const float weight : made.weights) made.weights_bf16.push_back(bf16_of(weight));
    made.inputs.router_weights = made.weights_bf16.data();
  }
  return made;
}

}  // namespace w4moe
