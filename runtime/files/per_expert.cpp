// Checkpoints with one set of tensors per expert and projection: "3.gate_proj.weight_packed", "3.w1.weight" and the like.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <optional>

#include "runtime/files/layer_families.hpp"

namespace w4moe {
namespace {

using Types = std::vector<std::string_view>;

/// The names behind a projection's, by family. Optional ones are empty where the family has none.
struct FamilyNames {
  std::string_view family;
  std::string_view codes;
  std::string_view scales;
  std::string_view global;
  std::string_view zeros;
};

constexpr FamilyNames kMxPerExpert{"mxfp4 per expert", "weight", "scale", "", ""};
constexpr FamilyNames kModelOptMx{"mxfp4 per expert", "weight", "weight_scale", "", ""};
constexpr FamilyNames kModelOpt{"modelopt", "weight", "weight_scale", "weight_scale_2", ""};
constexpr FamilyNames kCompressed{"compressed-tensors", "weight_packed", "weight_scale", "weight_global_scale", "weight_zero_point"};
constexpr FamilyNames kGptq{"gptq", "qweight", "scales", "", "qzeros"};
constexpr FamilyNames kAwq{"awq", "qweight", "scales", "", "qzeros"};

/// Tensors that belong to other uses of the same weights (W4A4, W4A8) and change nothing here.
constexpr std::string_view kIgnored[] = {"input_scale", "input_global_scale"};

/// Codes in a word, and the shapes they give the tensors of a rows x k projection.
constexpr i64 kCodesPerWord = 8;

class PerExpertReader {
 public:
  PerExpertReader(TensorTable& table, LayerFile& layer, const ReadHints& hints)
      : table_(table), layer_(layer), hints_(hints), problem_(layer.problem), source_(layer.source) {}

  Status read() {
    if (Status s = count_experts(); !s) return s;
    if (Status s = detect(); !s) return s;
    if (Status s = set_sizes(); !s) return s;
    set_orders();
    problem_.has_bias = table_.has(name(0, down_, "bias"));
    for (i64 expert = 0; expert < problem_.shape.experts; ++expert) {
      const i64 hidden = problem_.shape.hidden;
      const i64 features = problem_.shape.intermediate;
      if (gated_) {
        if (Status s = read_projection(expert, gate_, features, hidden, source_.gate, source_.gate_global); !s) return s;
      }
      if (Status s = read_projection(expert, up_, features, hidden, source_.up, source_.up_global); !s) return s;
      if (Status s = read_projection(expert, down_, hidden, features, source_.down, source_.down_global); !s) return s;
    }
    return {};
  }

 private:
  static std::string name(i64 expert, std::string_view projection, std::string_view suffix) {
    return fmt::format("{}.{}.{}", expert, projection, suffix);
  }

  /// Experts are 0..E-1 without a hole; the names of their projections come from expert 0.
  Status count_experts() {
    i64 largest = -1;
    for (const auto& [tensor_name, tensor] : table_.tensors()) {
      const std::size_t digits = tensor_name.find_first_not_of("0123456789");
      if (digits == 0 || digits == std::string::npos || digits > 6 || tensor_name[digits] != '.') {
        return table_.fault(tensor_name, fmt::format("expected an expert's number below {} after 'experts.', or gpt-oss's gate_up_proj_blocks and "
                                                     "down_proj_blocks with their _scales", kMaxExperts));
      }
      largest = std::max<i64>(largest, std::strtol(tensor_name.c_str(), nullptr, 10));
    }
    if (largest >= kMaxExperts) {
      return Error{ErrorCode::unsupported, fmt::format("expert {}: above the largest accepted, {}", largest, kMaxExperts - 1)};
    }
    problem_.shape.experts = largest + 1;
    const auto has_projection = [&](std::string_view projection) {
      const std::string begin = fmt::format("0.{}.", projection);
      const auto at = table_.tensors().lower_bound(begin);
      return at != table_.tensors().end() && at->first.starts_with(begin);
    };
    if (has_projection("w2")) gate_ = "w1", up_ = "w3", down_ = "w2";
    if (!has_projection(down_) || !has_projection(up_)) {
      return table_.fault(name(0, has_projection(down_) ? up_ : down_, "*"), "missing (accepted: gate_proj, up_proj, down_proj, or w1, w3, w2)");
    }
    gated_ = has_projection(gate_);
    return {};
  }

  /// Which family, from the names and dtypes of expert 0's up projection.
  Status detect() {
    const auto has = [&](std::string_view suffix) { return table_.has(name(0, up_, suffix)); };
    const auto tensor = [&](std::string_view suffix) { return has(suffix) ? table_.tensors().at(name(0, up_, suffix)) : nullptr; };
    QuantFormat& format = problem_.format;
    if (has("qweight")) {
      const FileTensor* codes = tensor("qweight");
      const FileTensor* scales = tensor("scales");
      if (scales == nullptr) return table_.fault(name(0, up_, "scales"), "missing");
      if (codes->shape.size() != 2 || scales->shape.size() != 2) return table_.fault(name(0, up_, "qweight"), "is no matrix");
      const bool is_awq = scales->shape[1] % kCodesPerWord == 0 && codes->shape[1] == scales->shape[1] / kCodesPerWord;
      names_ = is_awq ? kAwq : kGptq;
      format = QuantFormat{CodeType::u4, ScaleType::f16, kWholeRow, is_awq || !hints_.gptq_symmetric, false};
    } else if (has("weight_packed")) {
      names_ = kCompressed;
      if (tensor("weight_packed")->dtype == "I32") {
        names_.global = "";
        format = QuantFormat{CodeType::u4, ScaleType::bf16, kWholeRow, has("weight_zero_point"), false};
      } else {
        names_.zeros = "";
        format = has("weight_global_scale") ? kNvfp4 : kMxfp4;
        if (format.is_mxfp4()) names_.global = "";
      }
    } else if (has("weight")) {
      names_ = has("scale") ? kMxPerExpert : has("weight_scale_2") ? kModelOpt : kModelOptMx;
      format = has("weight_scale_2") ? kNvfp4 : kMxfp4;
    } else {
      return table_.fault(name(0, up_, "*"), "no codes among its tensors (accepted: weight, weight_packed or qweight, each with its scales)");
    }
    if (names_.zeros.empty() || !format.has_zero_point) names_.zeros = "";
    layer_.family = names_.family;
    return {};
  }

  bool transposed() const { return names_.family == kGptq.family || names_.family == kAwq.family; }
  bool is_awq() const { return names_.family == kAwq.family; }

  /// Sizes of a projection from the tensor of expert 0.
  Status matrix_size(std::string_view projection, i64& rows, i64& k, i64& groups) {
    const std::string codes_name = name(0, projection, names_.codes);
    const Result<const FileTensor*> codes = table_.require(codes_name);
    if (!codes) return codes.error();
    const Result<const FileTensor*> scales = table_.require(name(0, projection, names_.scales));
    if (!scales) return scales.error();
    const std::vector<i64>& shape = (*codes)->shape;
    if (shape.size() != 2 || (*scales)->shape.size() != 2) return table_.fault(codes_name, "it or its scales are no matrix");
    if (shape[0] > kMaxIntermediate || shape[1] > kMaxIntermediate) {
      return table_.fault(codes_name, fmt::format("shape {}: no dimension above {} is served", shape, kMaxIntermediate));
    }
    const i64 per_column = (*codes)->dtype == "I32" ? kCodesPerWord : (*codes)->dtype == "F4" ? 1 : 2;
    rows = is_awq() ? shape[1] * kCodesPerWord : transposed() ? shape[1] : shape[0];
    k = is_awq() ? shape[0] : transposed() ? shape[0] * kCodesPerWord : shape[1] * per_column;
    groups = (*scales)->shape[transposed() ? 0 : 1];
    return {};
  }

  Status set_sizes() {
    i64 features = 0;
    i64 hidden = 0;
    i64 groups = 0;
    if (Status s = matrix_size(up_, features, hidden, groups); !s) return s;
    i64 down_rows = 0;
    i64 down_k = 0;
    i64 down_groups = 0;
    if (Status s = matrix_size(down_, down_rows, down_k, down_groups); !s) return s;
    problem_.shape.hidden = hidden;
    problem_.shape.intermediate = features;
    problem_.activation = gated_ ? Activation::silu : Activation::relu2;
    problem_.params = default_params(problem_.activation);
    QuantFormat& format = problem_.format;
    if (!format.is_int4()) return {};
    const FileTensor* scales = table_.find(name(0, up_, names_.scales));
    format.scale = scales->dtype == "F16" ? ScaleType::f16 : ScaleType::bf16;
    if (groups == 1 && down_groups == 1) return {};  // one scale a row
    if (groups <= 0 || hidden % groups != 0) {
      return table_.fault(name(0, up_, names_.scales), fmt::format("{} groups do not divide {} columns", groups, hidden));
    }
    format.group_size = hidden / groups;
    return {};
  }

  void set_orders() {
    source_.gate_up_order = GateUpOrder::separate;
    source_.code_order = is_awq() ? CodeOrder::awq_words : CodeOrder::low_nibble_first;
    source_.code_sign = problem_.format.is_int4() ? CodeSign::offset8 : CodeSign::unspecified;
    source_.scale_layout = transposed() ? ScaleLayout::transposed : ScaleLayout::row_major;
    source_.zero_order = names_.zeros.empty() ? ZeroOrder::none : is_awq() ? ZeroOrder::awq_words : ZeroOrder::nibbles_along_rows;
    source_.zero_add = names_.family == kGptq.family && !hints_.gptq_v2 ? 1 : 0;  // its first format stores zero points less one
    source_.global_convention = names_.global.empty()                 ? GlobalConvention::none
                                : names_.family == kCompressed.family ? GlobalConvention::reciprocal
                                                                      : GlobalConvention::multiply;
  }

  Types scale_types() const {
    switch (problem_.format.scale) {
      case ScaleType::e8m0: return {"F8_E8M0", "U8"};
      case ScaleType::e4m3: return {"F8_E4M3"};
      case ScaleType::bf16: return {"BF16"};
      case ScaleType::f16: return {"F16"};
    }
    return {};
  }

  Status read_projection(i64 expert, std::string_view projection, i64 rows, i64 k, SourceMatrix& matrix, std::vector<float>& globals) {
    if (Status s = read_codes(expert, projection, rows, k, matrix.codes); !s) return s;
    const i64 groups = problem_.format.groups(k);
    const std::string scales_name = name(expert, projection, names_.scales);
    const std::vector<i64> scale_shape = transposed() ? std::vector<i64>{groups, rows} : std::vector<i64>{rows, groups};
    if (Status s = add(scales_name, scale_shape, scale_types(), scale_shape, {}, matrix.scales); !s) return s;
    if (!names_.zeros.empty()) {
      const i64 words = word_rows(rows);
      const std::string zeros_name = name(expert, projection, names_.zeros);
      const std::vector<i64> file_shape = transposed() ? std::vector<i64>{groups, words} : std::vector<i64>{words, groups};
      const std::vector<i64> strides = transposed() ? std::vector<i64>{1, words} : std::vector<i64>{};
      if (Status s = add(zeros_name, file_shape, {"I32"}, {words, groups}, strides, matrix.zeros); !s) return s;
    }
    if (!names_.global.empty()) {
      if (Status s = read_global(name(expert, projection, names_.global), globals); !s) return s;
    }
    if (problem_.has_bias) {
      if (Status s = add(name(expert, projection, "bias"), {rows}, {"BF16", "F16", "F32"}, {rows}, {}, matrix.bias); !s) return s;
    }
    for (const std::string_view ignored : kIgnored) table_.ignore(name(expert, projection, ignored));
    for (const std::string_view order : {"g_idx", "weight_g_idx"}) {
      if (Status s = check_order_of_groups(name(expert, projection, order), k); !s) return s;
    }
    if (names_.family == kGptq.family && names_.zeros.empty()) {
      if (Status s = check_zeros_are_trivial(name(expert, projection, kGptq.zeros), groups, rows); !s) return s;
    }
    return check_stated_shape(name(expert, projection, "weight_shape"), rows, k);
  }

  Status read_codes(i64 expert, std::string_view projection, i64 rows, i64 k, SourceOperand& operand) {
    const std::string codes = name(expert, projection, names_.codes);
    const i64 words = code_word_columns(k);
    if (is_awq()) return add(codes, {k, word_rows(rows)}, {"I32"}, {word_rows(rows), k}, {1, word_rows(rows)}, operand);
    if (transposed()) return add(codes, {words, rows}, {"I32"}, {rows, words}, {1, rows}, operand);
    if (problem_.format.is_int4()) return add(codes, {rows, words}, {"I32"}, {rows, words}, {}, operand);
    const FileTensor* tensor = table_.find(codes);
    const i64 bytes = code_byte_columns(k);
    if (tensor != nullptr && tensor->dtype == "F4") return add(codes, {rows, k}, {"F4"}, {rows, bytes}, {}, operand);
    return add(codes, {rows, bytes}, {"U8", "I8"}, {rows, bytes}, {}, operand);
  }

  /// Appends an expert's tensor: checked in the file's shape, described in `shape` and `strides`.
  Status add(const std::string& tensor_name, const std::vector<i64>& file_shape, const Types& types, std::vector<i64> shape,
             std::vector<i64> strides, SourceOperand& operand) {
    const Result<const FileTensor*> tensor = table_.require(tensor_name, file_shape, types);
    if (!tensor) return tensor.error();
    const Result<SourceType> type = source_type_of(**tensor);
    if (!type) return type.error();
    operand.push_back(SourceTensor{(*tensor)->data, *type, std::move(shape), std::move(strides)});
    return {};
  }

  Status read_global(const std::string& tensor_name, std::vector<float>& globals) {
    const Result<const FileTensor*> tensor = table_.require(tensor_name);
    if (!tensor) return tensor.error();
    if ((*tensor)->dtype != "F32" || (*tensor)->bytes != sizeof(float)) {
      return table_.fault(tensor_name, fmt::format("{} {}, expected one F32", (*tensor)->dtype, (*tensor)->shape));
    }
    float value = 0;
    std::memcpy(&value, (*tensor)->data, sizeof(value));
    globals.push_back(value);
    return {};
  }

  /// GPTQ with act-order permutes the columns of a group: only the trivial order is served.
  Status check_order_of_groups(const std::string& order_name, i64 k) {
    if (!table_.has(order_name)) return {};
    const Result<const FileTensor*> order = table_.require(order_name, {k}, {"I32"});
    if (!order) return order.error();
    for (i64 column = 0; column < k; ++column) {
      i32 group = 0;
      std::memcpy(&group, (*order)->data + column * static_cast<i64>(sizeof(group)), sizeof(group));
      if (group != problem_.format.group_of(column)) {
        return Error{ErrorCode::unsupported, fmt::format("tensor '{}{}': column {} belongs to group {} (act-order is not served)",
                                                         table_.prefix(), order_name, column, group)};
      }
    }
    return {};
  }

  /// A symmetric GPTQ checkpoint stores zero points all the same.
  Status check_zeros_are_trivial(const std::string& zeros_name, i64 groups, i64 rows) {
    const Result<const FileTensor*> zeros = table_.require(zeros_name, {groups, word_rows(rows)}, {"I32"});
    if (!zeros) return zeros.error();
    const u8 pair = hints_.gptq_v2 ? 0x88 : 0x77;
    const auto* bytes = reinterpret_cast<const u8*>((*zeros)->data);
    for (i64 i = 0; i < (*zeros)->bytes; ++i) {
      if (bytes[i] != pair) {
        return table_.fault(zeros_name, fmt::format("byte {} is 0x{:02x}: a zero point that is not 8, though the config says sym (expected 0x{:02x})", i, bytes[i], pair));
      }
    }
    return {};
  }

  /// compressed-tensors states the logical shape beside the packed one.
  Status check_stated_shape(const std::string& tensor_name, i64 rows, i64 k) {
    if (!table_.has(tensor_name)) return {};
    const Result<const FileTensor*> tensor = table_.require(tensor_name, {2}, {"I64", "I32"});
    if (!tensor) return tensor.error();
    i64 stated[2] = {};
    for (std::size_t i = 0; i < 2; ++i) {
      const i64 bytes = (*tensor)->bytes / 2;
      std::memcpy(&stated[i], (*tensor)->data + static_cast<i64>(i) * bytes, static_cast<std::size_t>(bytes));
    }
    if (stated[0] == rows && stated[1] == k) return {};
    return table_.fault(tensor_name, fmt::format("states [{}, {}], the packed tensor holds [{}, {}]", stated[0], stated[1], rows, k));
  }

  TensorTable& table_;
  LayerFile& layer_;
  const ReadHints& hints_;
  Problem& problem_;
  SourceWeights& source_;
  FamilyNames names_{};
  std::string_view gate_ = "gate_proj";
  std::string_view up_ = "up_proj";
  std::string_view down_ = "down_proj";
  bool gated_ = true;
};

}  // namespace

Status read_per_expert(TensorTable& table, LayerFile& layer, const ReadHints& hints) { return PerExpertReader(table, layer, hints).read(); }

Status read_family(TensorTable& table, LayerFile& layer, const ReadHints& hints) {
  layer.prefix = table.prefix();
  layer.problem.name = layer.prefix;
  layer.problem.shape.topk = 1;
  layer.problem.shape.max_tokens = 1;
  Status read = table.has("gate_up_proj_blocks") ? read_gpt_oss(table, layer) : read_per_expert(table, layer, hints);
  return read ? table.all_used() : read;
}

}  // namespace w4moe
