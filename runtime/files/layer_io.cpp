// The run-time tensors of a call: inputs from a file, the output to one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/files/layer_file.hpp"
#include "runtime/weights/float_bits.hpp"

namespace w4moe {
namespace {

Error fault(const SafetensorsFile& file, std::string_view tensor, std::string what) {
  return Error{ErrorCode::invalid_argument, fmt::format("{}: tensor '{}': {}", file.name(), tensor, what)};
}

/// A matrix by name, of one of the dtypes; `columns` < 0 accepts any.
Result<const FileTensor*> matrix(const SafetensorsFile& file, std::string_view name, i64 rows, std::initializer_list<std::string_view> types) {
  const FileTensor* tensor = file.find(name);
  if (tensor == nullptr) return fault(file, name, "missing");
  if (std::find(types.begin(), types.end(), tensor->dtype) == types.end()) {
    return fault(file, name, fmt::format("dtype {}, expected {}", tensor->dtype, fmt::join(types, " or ")));
  }
  if (tensor->shape.size() != 2 || (rows >= 0 && tensor->shape[0] != rows)) {
    return fault(file, name, fmt::format("shape [{}], expected [{}, any]", fmt::join(tensor->shape, ", "), rows < 0 ? "m" : std::to_string(rows)));
  }
  return tensor;
}

template <class T>
std::vector<T> copy_of(const FileTensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.bytes) / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.data, static_cast<std::size_t>(tensor.bytes));
  return values;
}

std::vector<float> as_floats(const FileTensor& tensor) {
  if (tensor.dtype == "F32") return copy_of<float>(tensor);
  std::vector<float> values;
  for (const u16 bits : copy_of<u16>(tensor)) values.push_back(tensor.dtype == "F16" ? float_of_f16(bits) : float_of_bf16(bits));
  return values;
}

/// The largest `topk` logits of each token, ties to the lower expert, and softmax weights over them: the same numbers as a
/// softmax over all experts that is normalised over the chosen ones.
void route_by_logits(const std::vector<float>& logits, i64 experts, LayerInputs& into) {
  std::vector<i32> order(static_cast<std::size_t>(experts));
  for (std::size_t first = 0; first < logits.size(); first += order.size()) {
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](i32 expert) { return logits[first + static_cast<std::size_t>(expert)]; };
    std::partial_sort(order.begin(), order.begin() + into.topk, order.end(), [&](i32 a, i32 b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
    float sum = 0;
    const std::size_t row = into.weights.size();
    for (i64 j = 0; j < into.topk; ++j) {
      const i32 expert = order[static_cast<std::size_t>(j)];
      into.ids32.push_back(expert);
      into.weights.push_back(std::exp(at(expert) - at(order[0])));
      sum += into.weights.back();
    }
    for (std::size_t i = row; i < into.weights.size(); ++i) into.weights[i] /= sum;
  }
}

Status read_logits(const SafetensorsFile& file, i64 tokens, i64 topk, LayerInputs& into) {
  const Result<const FileTensor*> logits = matrix(file, "router_logits", tokens, {"F32", "BF16", "F16"});
  if (!logits) return logits.error();
  const i64 experts = (*logits)->shape[1];
  if (topk < 1 || topk > experts) {
    return fault(file, "router_logits", fmt::format("top-k {}: with logits of {} experts, accepted are 1..{}", topk, experts, experts));
  }
  const std::vector<float> values = as_floats(**logits);
  const bool usable = std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  if (!usable) return fault(file, "router_logits", "holds a NaN or an infinity");
  into.topk = topk;
  route_by_logits(values, experts, into);
  return {};
}

Status read_routes(const SafetensorsFile& file, i64 tokens, LayerInputs& into) {
  const Result<const FileTensor*> ids = matrix(file, "topk_ids", tokens, {"I32", "I64"});
  if (!ids) return ids.error();
  const Result<const FileTensor*> weights = matrix(file, "topk_weights", tokens, {"F32", "BF16"});
  if (!weights) return weights.error();
  into.topk = (*ids)->shape[1];
  if ((*weights)->shape[1] != into.topk) {
    return fault(file, "topk_weights", fmt::format("{} columns, topk_ids has {}", (*weights)->shape[1], into.topk));
  }
  if ((*ids)->dtype == "I32") into.ids32 = copy_of<i32>(**ids);
  if ((*ids)->dtype == "I64") into.ids64 = copy_of<i64>(**ids), into.inputs.id_type = IdType::i64;
  if ((*weights)->dtype == "F32") into.weights = copy_of<float>(**weights);
  if ((*weights)->dtype == "BF16") into.weights_bf16 = copy_of<u16>(**weights), into.inputs.router_dtype = DType::bf16;
  return {};
}

}  // namespace

Result<LayerInputs> open_inputs(const std::string& path, i64 topk_of_logits) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  return read_inputs(*file, topk_of_logits);
}

Result<LayerInputs> read_inputs(const SafetensorsFile& file, i64 topk_of_logits) {
  const Result<const FileTensor*> x = matrix(file, "x", -1, {"BF16", "F16"});
  if (!x) return x.error();
  LayerInputs read;
  read.dtype = (*x)->dtype == "F16" ? DType::f16 : DType::bf16;
  read.hidden = (*x)->shape[1];
  read.x = copy_of<u16>(**x);
  const i64 tokens = (*x)->shape[0];
  const bool has_logits = file.find("router_logits") != nullptr;
  if (has_logits && file.find("topk_ids") != nullptr) return fault(file, "router_logits", "given beside topk_ids; only one of them says where tokens go");
  if (Status s = has_logits ? read_logits(file, tokens, topk_of_logits, read) : read_routes(file, tokens, read); !s) return s.error();

  MoeInputs& in = read.inputs;
  in.tokens = tokens;
  in.x = read.x.data();
  in.x_row_stride_elems = read.hidden;
  in.ids = in.id_type == IdType::i64 ? static_cast<const void*>(read.ids64.data()) : read.ids32.data();
  in.ids_row_stride_elems = read.topk;
  in.router_weights = in.router_dtype == DType::bf16 ? static_cast<const void*>(read.weights_bf16.data()) : read.weights.data();
  in.router_row_stride_elems = read.topk;
  return read;
}

Status write_output(const std::string& path, DType dtype, i64 tokens, i64 hidden, std::span<const u16> out) {
  const FileTensor tensor{"out", dtype == DType::f16 ? "F16" : "BF16", {tokens, hidden}, reinterpret_cast<const std::byte*>(out.data()),
                          static_cast<i64>(out.size_bytes())};
  return write_safetensors(path, std::span(&tensor, 1));
}

}  // namespace w4moe
