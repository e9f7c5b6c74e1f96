// A rank's part of a layer, as views: nothing is copied.
#include <algorithm>

#include "generator/problem/errors.hpp"
#include "runtime/weights/operand.hpp"
#include "w4moe/checkpoint.hpp"

namespace w4moe {
namespace {

constexpr i64 kMaxRanks = 65536;
constexpr i64 kRowsOfWord = 8;  ///< rows that share an int32 word, and columns that do

Status check_rank(std::string_view what, const RankOf& of) {
  if (of.size < 1 || of.size > kMaxRanks) return invalid_argument("{} of {} ranks (accepted: 1..{})", what, of.size, kMaxRanks);
  if (of.rank < 0 || of.rank >= of.size) return invalid_argument("{} rank {} of {} (accepted: 0..{})", what, of.rank, of.size, of.size - 1);
  return {};
}

/// The sizes of a group that a test accepts, for messages.
template <class Accepts>
std::string accepted_sizes(i64 total, const Accepts& accepts) {
  constexpr i64 kListed = 64;
  std::vector<i64> sizes;
  for (i64 size = 1; size <= std::min(total, kListed); ++size) {
    if (accepts(size)) sizes.push_back(size);
  }
  return fmt::format("{}", fmt::join(sizes, ", "));
}

/// Elements first .. first + count - 1 of one dimension of a tensor.
SourceTensor cut(SourceTensor tensor, std::size_t dim, i64 first, i64 count) {
  if (tensor.strides_elems.empty()) {
    tensor.strides_elems.resize(tensor.shape.size());
    i64 contiguous = 1;
    for (std::size_t i = tensor.shape.size(); i-- > 0;) {
      tensor.strides_elems[i] = contiguous;
      contiguous *= tensor.shape[i];
    }
  }
  const i64 distance = first * tensor.strides_elems[dim] * source_type_bytes(tensor.type);
  tensor.data = static_cast<const u8*>(tensor.data) + distance;
  tensor.shape[dim] = count;
  return tensor;
}

/// The same of dimension `dim` of each expert's tensor of rank `rank`.
SourceOperand cut_each(const SourceOperand& operand, std::size_t rank, std::size_t dim, i64 first, i64 count) {
  SourceOperand part;
  for (const SourceTensor& tensor : operand) part.push_back(cut(tensor, tensor.shape.size() - rank + dim, first, count));
  return part;
}

SourceOperand cut_experts(const SourceOperand& operand, std::size_t rank, i64 experts, i64 first, i64 count) {
  if (operand.empty()) return {};
  if (is_stacked(operand, rank, experts)) return {cut(operand[0], 0, first, count)};
  return SourceOperand(operand.begin() + first, operand.begin() + first + count);
}

class Cutter {
 public:
  Cutter(const Problem& problem, const SourceWeights& source) : problem_(problem), source_(source), format_(problem.format) {}

  bool rows_share_words() const {
    return source_.code_order == CodeOrder::awq_words ||
           (format_.has_zero_point && (source_.zero_order == ZeroOrder::awq_words || source_.zero_order == ZeroOrder::nibbles_along_rows));
  }

  /// Whether every tensor can be cut between features that are multiples of `features`.
  bool cuts_at(i64 features) const {
    const bool groups = format_.divides(features);
    const bool words = (!rows_share_words() && !codes_are_words()) || features % kRowsOfWord == 0;
    const bool pairs = features % 2 == 0 && (!two_groups_a_byte() || format_.groups(features) % 2 == 0 || format_.group_size == kWholeRow);
    return groups && words && pairs;
  }

  SourceMatrix rows(const SourceMatrix& from, i64 first, i64 count) const {
    SourceMatrix part;
    const bool awq = source_.code_order == CodeOrder::awq_words;
    part.codes = cut_each(from.codes, 2, 0, awq ? word_rows(first) : first, awq ? word_rows(count) : count);
    part.scales = cut_each(from.scales, 2, source_.scale_layout == ScaleLayout::transposed ? 1 : 0, first, count);
    if (format_.has_zero_point) {
      const bool words = source_.zero_order == ZeroOrder::awq_words || source_.zero_order == ZeroOrder::nibbles_along_rows;
      part.zeros = cut_each(from.zeros, 2, 0, words ? word_rows(first) : first, words ? word_rows(count) : count);
    }
    part.bias = cut_each(from.bias, 1, 0, first, count);
    return part;
  }

  /// Columns of `down`; its bias is not cut.
  SourceMatrix columns(const SourceMatrix& from, i64 first, i64 count) const {
    SourceMatrix part;
    const bool awq = source_.code_order == CodeOrder::awq_words;
    const bool words = !awq && codes_are_words();
    const auto code_columns = [&](i64 k) { return awq ? k : words ? code_word_columns(k) : code_byte_columns(k); };
    part.codes = cut_each(from.codes, 2, 1, code_columns(first), code_columns(count));
    part.bias = from.bias;
    if (format_.group_size == kWholeRow) {  // the one scale of a row is every rank's
      part.scales = from.scales;
      part.zeros = from.zeros;
      return part;
    }
    const i64 first_group = format_.groups(first);
    const i64 groups = format_.groups(count);
    part.scales = cut_each(from.scales, 2, source_.scale_layout == ScaleLayout::transposed ? 0 : 1, first_group, groups);
    if (format_.has_zero_point) {
      const bool pairs = two_groups_a_byte();
      part.zeros = cut_each(from.zeros, 2, 1, pairs ? zero_byte_columns(first_group) : first_group, pairs ? zero_byte_columns(groups) : groups);
    }
    return part;
  }

  SourceMatrix experts(const SourceMatrix& from, i64 first, i64 count) const {
    const i64 all = problem_.shape.experts;
    return SourceMatrix{cut_experts(from.codes, 2, all, first, count), cut_experts(from.scales, 2, all, first, count),
                        cut_experts(from.zeros, 2, all, first, count), cut_experts(from.bias, 1, all, first, count)};
  }

 private:
  bool codes_are_words() const { return !source_.down.codes.empty() && source_.down.codes[0].type == SourceType::i32; }
  bool two_groups_a_byte() const {
    return format_.has_zero_point &&
           (source_.zero_order == ZeroOrder::nibbles_along_groups || source_.zero_order == ZeroOrder::nibbles_along_groups_high_first);
  }

  const Problem& problem_;
  const SourceWeights& source_;
  const QuantFormat& format_;
};

Status check_tensor_parallel(const Problem& problem, const SourceWeights& source, const Cutter& cutter, const RankOf& tp) {
  const i64 features = problem.shape.intermediate;
  const auto accepts = [&](i64 size) { return features % size == 0 && (size == 1 || cutter.cuts_at(features / size)); };
  if (source.scale_layout == ScaleLayout::swizzled_128x4) return unsupported("tp {}: 128x4-swizzled scales are not cut along I (accepted: 1)", tp.size);
  if (accepts(tp.size)) return {};
  const std::string sizes = accepted_sizes(features, accepts);
  if (features % tp.size != 0) return unsupported("tp {} does not divide I {} (accepted: {})", tp.size, features, sizes);
  return unsupported("tp {}: I {} / {} = {} is no whole number of groups and words of format {}{} (accepted tp: {})", tp.size, features, tp.size,
                     features / tp.size, to_string(problem.format), cutter.rows_share_words() ? ", eight rows to a word" : "", sizes);
}

void cut_features(const Cutter& cutter, const RankOf& tp, const Problem& whole, const SourceWeights& source, ShardedLayer& part) {
  const i64 features = whole.shape.intermediate;
  const i64 count = features / tp.size;
  const i64 first = tp.rank * count;
  part.problem.shape.intermediate = count;
  SourceWeights& to = part.source;
  switch (source.gate_up_order) {
    case GateUpOrder::interleaved: to.gate_up = cutter.rows(source.gate_up, 2 * first, 2 * count); break;
    case GateUpOrder::gate_first:
    case GateUpOrder::up_first: {  // what is left of one run of rows are two runs: separate tensors from here on
      const bool up_first = source.gate_up_order == GateUpOrder::up_first;
      to.gate = cutter.rows(source.gate_up, up_first ? features + first : first, count);
      to.up = cutter.rows(source.gate_up, up_first ? first : features + first, count);
      to.gate_up = {};
      to.gate_up_order = GateUpOrder::separate;
      break;
    }
    default:
      if (is_gated(whole.activation)) to.gate = cutter.rows(source.gate, first, count);
      to.up = cutter.rows(source.up, first, count);
  }
  to.down = cutter.columns(source.down, first, count);
  if (whole.has_bias && tp.rank != 0) {
    to.down.bias.clear();
    to.output_bias = false;
  }
}

void cut_globals(std::vector<float>& values, i64 first, i64 count) {
  if (!values.empty()) values = std::vector<float>(values.begin() + first, values.begin() + first + count);
}

}  // namespace

Result<ShardedLayer> shard_layer(const Problem& problem, const SourceWeights& source, const Shard& shard) {
  if (Status s = check_rank("tp", shard.tp); !s) return s.error();
  if (Status s = check_rank("ep", shard.ep); !s) return s.error();
  if (Status s = validate_source(problem, source); !s) return s.error();
  ShardedLayer part{problem, source, 0};
  if (shard.tp.size > 1) {
    const Cutter cutter(problem, source);
    if (Status s = check_tensor_parallel(problem, source, cutter, shard.tp); !s) return s.error();
    cut_features(cutter, shard.tp, problem, source, part);
  }
  const i64 experts = problem.shape.experts;
  if (experts % shard.ep.size != 0) {
    return unsupported("ep {} does not divide {} experts (accepted: {})", shard.ep.size, experts,
                       accepted_sizes(experts, [&](i64 size) { return experts % size == 0; }));
  }
  if (shard.ep.size > 1) {
    const i64 count = experts / shard.ep.size;
    if (source.scale_layout == ScaleLayout::swizzled_128x4 && is_stacked(source.down.scales, 2, experts)) {
      return unsupported("ep {}: stacked 128x4-swizzled scales are not cut (accepted: 1, or one tensor an expert)", shard.ep.size);
    }
    part.first_expert = shard.ep.rank * count;
    const Cutter cutter(problem, part.source);
    for (SourceMatrix* matrix : {&part.source.gate_up, &part.source.gate, &part.source.up, &part.source.down}) {
      *matrix = cutter.experts(*matrix, part.first_expert, count);
    }
    for (std::vector<float>* values : {&part.source.gate_global, &part.source.up_global, &part.source.down_global}) {
      cut_globals(*values, part.first_expert, count);
    }
    part.problem.shape.experts = count;
  }
  if (Status s = validate_source(part.problem, part.source); !s) return s.error();
  return part;
}

}  // namespace w4moe
