#include "runtime/files/tensor_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace w4moe {
namespace {

constexpr std::string_view kExperts = "experts.";
constexpr std::size_t kListed = 8;

std::string list(const std::set<std::string>& prefixes) {
  std::vector<std::string> some;
  for (const std::string& prefix : prefixes) {
    if (some.size() == kListed) return fmt::format("{}, ... ({} in all)", fmt::join(some, ", "), prefixes.size());
    some.push_back(prefix.substr(0, prefix.size() - kExperts.size()));
  }
  return fmt::format("{}", fmt::join(some, ", "));
}

}  // namespace

std::size_t expert_prefix_length(std::string_view name) {
  for (std::size_t at = name.find(kExperts); at != std::string_view::npos; at = name.find(kExperts, at + 1)) {
    if (at > 0 && name[at - 1] != '.') continue;  // "shared_experts."
    const std::string_view rest = name.substr(at + kExperts.size());
    if (rest.empty()) continue;
    if ((rest[0] >= '0' && rest[0] <= '9') || rest.starts_with("gate_up_proj") || rest.starts_with("down_proj")) {
      return at + kExperts.size();
    }
  }
  return 0;
}

std::string normal_expert_prefix(std::string_view prefix) {
  std::string text(prefix);
  if (!text.empty() && text.back() != '.') text += '.';
  if (!text.ends_with(kExperts)) text += kExperts;
  return text;
}

Result<SourceType> source_type_of(const FileTensor& tensor) {
  static const std::map<std::string_view, SourceType> kTypes{{"U8", SourceType::u8},        {"I8", SourceType::i8},
                                                             {"I32", SourceType::i32},      {"F8_E8M0", SourceType::e8m0},
                                                             {"F8_E4M3", SourceType::e4m3}, {"BF16", SourceType::bf16},
                                                             {"F16", SourceType::f16},      {"F32", SourceType::f32},
                                                             {"F4", SourceType::u8}};
  const auto at = kTypes.find(tensor.dtype);
  if (at != kTypes.end()) return at->second;
  return Error{ErrorCode::unsupported, fmt::format("tensor '{}': dtype {} is not used in layers", tensor.name, tensor.dtype)};
}

Result<TensorTable> TensorTable::of_layer(std::string prefix, const std::vector<const FileTensor*>& tensors) {
  TensorTable table;
  table.prefix_ = std::move(prefix);
  for (const FileTensor* tensor : tensors) {
    if (!table.tensors_.emplace(tensor->name.substr(table.prefix_.size()), tensor).second) {
      return Error{ErrorCode::corrupt, fmt::format("tensor '{}' is in two files", tensor->name)};
    }
  }
  return table;
}

Result<TensorTable> TensorTable::find_layer(const std::vector<SafetensorsFile>& files, std::string_view prefix) {
  std::set<std::string> prefixes;
  std::string example;
  for (const SafetensorsFile& file : files) {
    for (const FileTensor& tensor : file.tensors()) {
      const std::size_t length = expert_prefix_length(tensor.name);
      if (length > 0) prefixes.insert(tensor.name.substr(0, length));
      if (length == 0 && example.empty()) example = tensor.name;
    }
  }
  if (prefixes.empty()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("no expert tensors found: no name holds 'experts.' and an expert's number or gate_up_proj{}",
                             example.empty() ? std::string{} : fmt::format(" (there is '{}')", example))};
  }
  TensorTable table;
  if (!prefix.empty()) {
    table.prefix_ = normal_expert_prefix(prefix);
    if (prefixes.count(table.prefix_) == 0) {
      return Error{ErrorCode::invalid_argument, fmt::format("no layer '{}' (layers: {})", prefix, list(prefixes))};
    }
  } else if (prefixes.size() > 1) {
    return Error{ErrorCode::invalid_argument, fmt::format("{} layers found, name one by its prefix: {}", prefixes.size(), list(prefixes))};
  } else {
    table.prefix_ = *prefixes.begin();
  }
  for (const SafetensorsFile& file : files) {
    for (const FileTensor& tensor : file.tensors()) {
      if (!tensor.name.starts_with(table.prefix_)) continue;
      const std::string name = tensor.name.substr(table.prefix_.size());
      if (!table.tensors_.emplace(name, &tensor).second) {
        return Error{ErrorCode::corrupt, fmt::format("tensor '{}' is in two files, the second is {}", tensor.name, file.name())};
      }
    }
  }
  return table;
}

Error TensorTable::fault(const std::string& name, const std::string& what) const {
  return Error{ErrorCode::invalid_argument, fmt::format("tensor '{}{}': {}", prefix_, name, what)};
}

const FileTensor* TensorTable::find(const std::string& name) {
  const auto at = tensors_.find(name);
  if (at == tensors_.end()) return nullptr;
  used_.insert(name);
  return at->second;
}

Result<const FileTensor*> TensorTable::require(const std::string& name) {
  const FileTensor* tensor = find(name);
  if (tensor == nullptr) return fault(name, "missing");
  return tensor;
}

Result<const FileTensor*> TensorTable::require(const std::string& name, const std::vector<i64>& shape,
                                               const std::vector<std::string_view>& types) {
  Result<const FileTensor*> tensor = require(name);
  if (!tensor) return tensor;
  if (std::find(types.begin(), types.end(), (*tensor)->dtype) == types.end()) {
    return fault(name, fmt::format("dtype {}, expected {}", (*tensor)->dtype, fmt::join(types, " or ")));
  }
  if ((*tensor)->shape != shape) return fault(name, fmt::format("shape {}, expected {}", (*tensor)->shape, shape));
  return tensor;
}

Status TensorTable::all_used() const {
  for (const auto& [name, tensor] : tensors_) {
    if (used_.count(name) == 0) return fault(name, "is no tensor that this kind of layer has; it would be ignored");
  }
  return {};
}

}  // namespace w4moe
