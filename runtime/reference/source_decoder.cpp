#include "runtime/reference/source_decoder.hpp"

#include <cmath>
#include <cstring>
#include <limits>

namespace w4moe {
namespace {

constexpr float kE2m1[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// Value of a binary float of 1 sign bit, `exponent_bits` and `mantissa_bits`, by the definition of the format.
double float_value(u32 bits, int exponent_bits, int mantissa_bits, bool has_infinities) {
  const u32 exponent = (bits >> mantissa_bits) & ((1u << exponent_bits) - 1u);
  const u32 mantissa = bits & ((1u << mantissa_bits) - 1u);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const bool top = exponent + 1 == (1u << exponent_bits);
  const bool special = has_infinities ? top : top && mantissa + 1 == (1u << mantissa_bits);  // e4m3fn: only s.1111.111
  if (special) return std::numeric_limits<double>::quiet_NaN();  // an infinite scale gives no finite weight either
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp(mantissa + (1u << mantissa_bits), static_cast<int>(exponent) - bias - mantissa_bits);
  return (bits >> (exponent_bits + mantissa_bits)) != 0 ? -magnitude : magnitude;
}

double scale_value(ScaleType type, u32 bits) {
  switch (type) {
    case ScaleType::e8m0: return bits == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, static_cast<int>(bits) - 127);
    case ScaleType::e4m3: return float_value(bits, 4, 3, false);
    case ScaleType::bf16: return float_value(bits, 8, 7, true);
    case ScaleType::f16: return float_value(bits, 5, 10, true);
  }
  return 0;
}

i64 bytes_per_element(SourceType type) {
  if (type == SourceType::i32 || type == SourceType::f32) return 4;
  return type == SourceType::bf16 || type == SourceType::f16 ? 2 : 1;
}

/// Address of an element of one expert's tensor: `index` counts the last dimensions, one more in front is the expert's.
template <std::size_t kRank>
const u8* element(const SourceOperand& operand, i64 expert, const i64 (&index)[kRank]) {
  const bool own_tensor = operand.size() > 1;
  const SourceTensor& tensor = operand[own_tensor ? static_cast<std::size_t>(expert) : 0];
  const std::size_t lead = tensor.shape.size() - kRank;
  const auto step = [&](i64 at, std::size_t dim, i64 by) {
    // Row-major where no strides are given: Horner's scheme over the dimensions.
    return tensor.strides_elems.empty() ? at * tensor.shape[dim] + by : at + by * tensor.strides_elems[dim];
  };
  i64 at = lead == 1 ? step(0, 0, expert) : 0;
  for (std::size_t dim = 0; dim < kRank; ++dim) at = step(at, lead + dim, index[dim]);
  return static_cast<const u8*>(tensor.data) + at * bytes_per_element(tensor.type);
}

u32 word_at(const SourceOperand& operand, i64 expert, i64 row, i64 column) {
  u32 word = 0;
  std::memcpy(&word, element(operand, expert, {row, column}), sizeof(word));
  return word;
}

/// The nibble of row 0..7 in a word whose nibbles, from the lowest, hold these rows.
u32 awq_nibble_of(u32 word, i64 row) {
  constexpr i64 kRows[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  for (i32 i = 0; i < 8; ++i) {
    if (kRows[i] == row) return (word >> (4 * i)) % 16;
  }
  return 0;
}

}  // namespace

i64 SourceDecoder::rows(Projection projection) const {
  return projection == Projection::down ? problem_.shape.hidden : problem_.shape.intermediate;
}

i64 SourceDecoder::columns(Projection projection) const {
  return projection == Projection::down ? problem_.shape.intermediate : problem_.shape.hidden;
}

const SourceMatrix& SourceDecoder::matrix(Projection projection) const {
  if (projection == Projection::down) return source_.down;
  if (source_.gate_up_order != GateUpOrder::separate) return source_.gate_up;
  return projection == Projection::gate ? source_.gate : source_.up;
}

i64 SourceDecoder::tensor_row(Projection projection, i64 row) const {
  const bool second_half = source_.gate_up_order == GateUpOrder::gate_first ? projection == Projection::up : projection == Projection::gate;
  if (projection == Projection::down || source_.gate_up_order == GateUpOrder::separate) return row;
  if (source_.gate_up_order == GateUpOrder::interleaved) return projection == Projection::gate ? 2 * row : 2 * row + 1;
  return second_half ? row + problem_.shape.intermediate : row;
}

double SourceDecoder::scale(const SourceMatrix& from, i64 expert, i64 tensor_row, i64 group, i64 groups) const {
  const u8* at = nullptr;
  switch (source_.scale_layout) {
    case ScaleLayout::row_major: at = element(from.scales, expert, {tensor_row, group}); break;
    case ScaleLayout::transposed: at = element(from.scales, expert, {group, tensor_row}); break;
    default: {
      // [row blocks of 128][column blocks of 4][row % 32][row / 32 % 4][column % 4]
      const i64 all_rows = &from == &source_.gate_up ? 2 * problem_.shape.intermediate : &from == &source_.down ? problem_.shape.hidden : problem_.shape.intermediate;
      const i64 row_blocks = all_rows / 128 + (all_rows % 128 != 0);
      const i64 column_blocks = groups / 4 + (groups % 4 != 0);
      const i64 expert_bytes = from.scales.size() > 1 ? 0 : expert * row_blocks * column_blocks * 512;
      const SourceTensor& tensor = from.scales[from.scales.size() > 1 ? static_cast<std::size_t>(expert) : 0];
      i64 index = tensor_row / 128;
      index = index * column_blocks + group / 4;
      index = index * 32 + tensor_row % 32;
      index = index * 4 + tensor_row / 32 % 4;
      index = index * 4 + group % 4;
      at = static_cast<const u8*>(tensor.data) + expert_bytes + index;
    }
  }
  u32 bits = at[0];
  if (problem_.format.scale == ScaleType::bf16 || problem_.format.scale == ScaleType::f16) bits += 256u * at[1];
  return scale_value(problem_.format.scale, bits);
}

u32 SourceDecoder::zero_point(const SourceMatrix& from, i64 expert, i64 tensor_row, i64 group) const {
  u32 stored = 0;
  switch (source_.zero_order) {
    case ZeroOrder::bytes: stored = *element(from.zeros, expert, {tensor_row, group}); break;
    case ZeroOrder::nibbles_along_rows: stored = word_at(from.zeros, expert, tensor_row / 8, group) >> (4 * (tensor_row % 8)); break;
    case ZeroOrder::awq_words: stored = awq_nibble_of(word_at(from.zeros, expert, tensor_row / 8, group), tensor_row % 8); break;
    default: {
      const u32 byte = *element(from.zeros, expert, {tensor_row, group / 2});
      const bool high = (group % 2 == 1) == (source_.zero_order == ZeroOrder::nibbles_along_groups);
      stored = high ? byte / 16 : byte % 16;
    }
  }
  return (stored + source_.zero_add) % 16;
}

void SourceDecoder::row(i64 expert, Projection projection, i64 row, float* values, double* scales) const {
  const SourceMatrix& from = matrix(projection);
  const i64 at_row = tensor_row(projection, row);
  const i64 k = columns(projection);
  const bool is_int4 = problem_.format.code == CodeType::u4;
  const bool high_first = source_.code_order == CodeOrder::high_nibble_first;
  const bool words = from.codes[0].type == SourceType::i32;
  const i64 group_size = problem_.format.group_size == kWholeRow ? k : problem_.format.group_size;
  const i64 groups = k / group_size + (k % group_size != 0);
  const bool awq = source_.code_order == CodeOrder::awq_words;
  const u8* const codes = awq ? nullptr : element(from.codes, expert, {at_row, 0});
  const i64 eight_bytes = !awq && words && k >= 16 ? element(from.codes, expert, {at_row, 1}) - codes : 4;
  for (i64 group = 0; group < groups; ++group) {
    scales[group] = scale(from, expert, at_row, group, groups);
    float table[16];
    const u32 zero = is_int4 && problem_.format.has_zero_point ? zero_point(from, expert, at_row, group) : 8;
    for (i32 stored = 0; stored < 16; ++stored) {
      const i32 code = source_.code_sign == CodeSign::twos_complement ? (stored + 8) % 16 : stored;
      table[stored] = is_int4 ? static_cast<float>(code - static_cast<i32>(zero)) : kE2m1[stored];
    }
    const i64 end = std::min(k, (group + 1) * group_size);
    if (awq) {
      for (i64 at = group * group_size; at < end; ++at) values[at] = table[awq_nibble_of(word_at(from.codes, expert, at_row / 8, at), at_row % 8)];
      continue;
    }
    for (i64 first = group * group_size; first < end; first += 8) {  // eight codes are one word or four adjacent bytes
      const u8* const four = codes + first / 8 * eight_bytes;
      for (i64 i = 0; i < 4; ++i) {
        const u32 low = four[i] % 16;
        const u32 high = four[i] / 16;
        values[first + 2 * i] = table[high_first ? high : low];
        values[first + 2 * i + 1] = table[high_first ? low : high];
      }
    }
  }
}

double SourceDecoder::global(i64 expert, Projection projection) const {
  if (source_.global_convention == GlobalConvention::none) return 1.0;
  const std::vector<float>& values = projection == Projection::down ? source_.down_global
                                     : projection == Projection::up ? source_.up_global
                                                                    : source_.gate_global;
  const double value = static_cast<double>(values[static_cast<std::size_t>(expert)]);
  return source_.global_convention == GlobalConvention::reciprocal ? 1.0 / value : value;
}

double SourceDecoder::bias(i64 expert, Projection projection, i64 row) const {
  if (!problem_.has_bias || (projection == Projection::down && !source_.output_bias)) return 0.0;
  const SourceOperand& operand = matrix(projection).bias;
  const u8* const at = element(operand, expert, {tensor_row(projection, row)});
  const SourceType type = operand[0].type;
  if (type == SourceType::f32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  }
  const u32 bits = at[0] + 256u * at[1];
  return type == SourceType::bf16 ? float_value(bits, 8, 7, true) : float_value(bits, 5, 10, true);
}

}  // namespace w4moe
