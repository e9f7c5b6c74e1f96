#include "runtime/files/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/files/mapped_file.hpp"

namespace w4moe {
namespace {

using Json = nlohmann::json;

struct DTypeBits {
  std::string_view name;
  i64 bits;
};
constexpr DTypeBits kDTypes[] = {{"BOOL", 8},    {"F4", 4},       {"U8", 8},   {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
                                 {"F8_E8M0", 8}, {"U16", 16},     {"I16", 16}, {"F16", 16}, {"BF16", 16},   {"U32", 32},
                                 {"I32", 32},    {"F32", 32},     {"U64", 64}, {"I64", 64}, {"F64", 64}};

constexpr i64 kLengthBytes = 8;
constexpr std::size_t kMaxRank = 16;
constexpr std::string_view kMetadataKey = "__metadata__";

template <class... Args>
Error corrupt(const std::string& file, fmt::format_string<Args...> text, Args&&... args) {
  return Error{ErrorCode::corrupt, fmt::format("{}: {}", file, fmt::format(text, std::forward<Args>(args)...))};
}

/// A count in the header: a whole number from 0 to 2^63 - 1.
bool read_count(const Json& value, i64& count) {
  if (!value.is_number_unsigned() || value.get<u64>() > static_cast<u64>(INT64_MAX)) return false;
  count = value.get<i64>();
  return true;
}

/// Parses the header; the second key of one name in any object is an error, which JSON itself would let pass.
Result<Json> parse_header(const std::string& file, std::string_view text) {
  std::vector<std::set<std::string>> open_objects;
  std::string repeated;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      if (!open_objects.back().insert(key).second && repeated.empty()) repeated = key;
    }
    return true;
  };
  try {
    Json header = Json::parse(text, watch);
    if (!repeated.empty()) return corrupt(file, "header names '{}' twice", repeated);
    if (!header.is_object()) return corrupt(file, "header is no JSON object");
    return header;
  } catch (const Json::exception& e) {
    return corrupt(file, "header is not JSON: {}", e.what());
  }
}

/// One entry of the header, against a data section of `data_bytes`.
Result<FileTensor> read_entry(const std::string& file, const std::string& name, const Json& entry, std::span<const std::byte> data,
                              i64& begin) {
  const auto fault = [&](const std::string& what) { return corrupt(file, "tensor '{}': {}", name, what); };
  if (!entry.is_object()) return fault("its entry is no JSON object");
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") return fault(fmt::format("unknown key '{}'", key));
  }
  FileTensor tensor;
  tensor.name = name;
  if (!entry.contains("dtype") || !entry["dtype"].is_string()) return fault("no dtype");
  tensor.dtype = entry["dtype"].get<std::string>();
  const i64 bits = safetensors_dtype_bits(tensor.dtype);
  if (bits == 0) return fault(fmt::format("unknown dtype '{}'", tensor.dtype));

  if (!entry.contains("shape") || !entry["shape"].is_array()) return fault("no shape");
  if (entry["shape"].size() > kMaxRank) return fault(fmt::format("{} dimensions, at most {} are read", entry["shape"].size(), kMaxRank));
  i64 shape_bits = bits;
  for (const Json& dim : entry["shape"]) {
    i64 count = 0;
    if (!read_count(dim, count)) {
      // Not dumped unless it is a number: a deep nest of arrays would be walked by recursion.
      return fault(fmt::format("dimension {} of its shape is no count{}", tensor.shape.size(), dim.is_number() ? ": " + dim.dump() : ""));
    }
    tensor.shape.push_back(count);
    if (__builtin_mul_overflow(shape_bits, count, &shape_bits)) return fault(fmt::format("shape {} overflows 64 bits", tensor.shape));
  }
  if (shape_bits % 8 != 0) return fault(fmt::format("shape {} of {} does not fill whole bytes", tensor.shape, tensor.dtype));

  i64 end = 0;
  if (!entry.contains("data_offsets") || !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2 ||
      !read_count(entry["data_offsets"][0], begin) || !read_count(entry["data_offsets"][1], end)) {
    return fault("data_offsets are no pair of counts");
  }
  const auto data_bytes = static_cast<i64>(data.size());
  if (begin > end || end > data_bytes) {
    return fault(fmt::format("bytes {}..{} do not lie in the {} bytes of data", begin, end, data_bytes));
  }
  tensor.bytes = end - begin;
  if (tensor.bytes != shape_bits / 8) {
    return fault(fmt::format("{} bytes for shape {} of {}, which takes {}", tensor.bytes, tensor.shape, tensor.dtype, shape_bits / 8));
  }
  tensor.data = data.data() + begin;
  return tensor;
}

}  // namespace

i64 safetensors_dtype_bits(std::string_view dtype) {
  for (const DTypeBits& known : kDTypes) {
    if (known.name == dtype) return known.bits;
  }
  return 0;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<MappedFile> mapped = map_file(path);
  if (!mapped) return mapped.error();
  Result<SafetensorsFile> file = parse(mapped->bytes, path);
  if (file) file->mapping_ = mapped->owner;
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile file;
  file.name_ = std::move(name);
  const auto file_bytes = static_cast<i64>(bytes.size());
  if (file_bytes < kLengthBytes) return corrupt(file.name_, "{} bytes, too few for a safetensors file", file_bytes);
  u64 stated = 0;
  std::memcpy(&stated, bytes.data(), sizeof(stated));
  if (stated > static_cast<u64>(file_bytes - kLengthBytes)) {
    return corrupt(file.name_, "header of {} bytes stated, the file has {} after its length", stated, file_bytes - kLengthBytes);
  }
  if (stated > static_cast<u64>(kMaxSafetensorsHeaderBytes)) {
    return corrupt(file.name_, "header of {} bytes, at most {} are read", stated, kMaxSafetensorsHeaderBytes);
  }
  const auto header_bytes = static_cast<std::size_t>(stated);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes);
  const Result<Json> header = parse_header(file.name_, text);
  if (!header) return header.error();

  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);
  std::vector<std::pair<i64, std::size_t>> by_offset;
  for (const auto& [key, entry] : header->items()) {
    if (key == kMetadataKey) {
      if (!entry.is_object()) return corrupt(file.name_, "__metadata__ is no JSON object");
      for (const auto& [name_of_value, value] : entry.items()) {
        if (!value.is_string()) return corrupt(file.name_, "__metadata__ '{}' is no string", name_of_value);
        file.metadata_[name_of_value] = value.get<std::string>();
      }
      continue;
    }
    i64 begin = 0;
    Result<FileTensor> tensor = read_entry(file.name_, key, entry, data, begin);
    if (!tensor) return tensor.error();
    by_offset.emplace_back(begin, file.tensors_.size());
    file.tensors_.push_back(std::move(*tensor));
  }
  // Sorted by place and, among empty ones of one place, by length: each begins where the one before ended.
  std::sort(by_offset.begin(), by_offset.end(), [&](const auto& a, const auto& b) {
    return std::tuple(a.first, file.tensors_[a.second].bytes, a.second) < std::tuple(b.first, file.tensors_[b.second].bytes, b.second);
  });
  i64 expected = 0;
  for (const auto& [begin, index] : by_offset) {
    const FileTensor& tensor = file.tensors_[index];
    if (begin != expected) {
      return corrupt(file.name_, "tensor '{}' begins at {}, {} {}", tensor.name, begin,
                     begin < expected ? "inside the tensor that ends at" : "after a gap from", expected);
    }
    expected = begin + tensor.bytes;
  }
  if (expected != static_cast<i64>(data.size())) {
    return corrupt(file.name_, "{} bytes of data, the tensors take {}", data.size(), expected);
  }
  return file;
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name, [](const FileTensor& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

Result<std::string> safetensors_header(std::span<const FileTensor> tensors, const std::map<std::string, std::string>& metadata) {
  const auto invalid = [](const FileTensor& t, std::string what) {
    return Error{ErrorCode::invalid_argument, fmt::format("tensor '{}': {}", t.name, what)};
  };
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  i64 offset = 0;
  for (const FileTensor& tensor : tensors) {
    i64 bits = safetensors_dtype_bits(tensor.dtype);
    if (bits == 0) return invalid(tensor, fmt::format("unknown dtype '{}'", tensor.dtype));
    if (tensor.name.empty() || tensor.name == kMetadataKey || header.contains(tensor.name)) {
      return invalid(tensor, "the name is empty, reserved or used twice");
    }
    for (const i64 dim : tensor.shape) {
      if (dim < 0 || __builtin_mul_overflow(bits, dim, &bits)) return invalid(tensor, fmt::format("shape {} is impossible", tensor.shape));
    }
    if (bits % 8 != 0 || bits / 8 != tensor.bytes) {
      return invalid(tensor, fmt::format("{} bytes do not fit shape {} of {}", tensor.bytes, tensor.shape, tensor.dtype));
    }
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& e) {
    return Error{ErrorCode::invalid_argument, fmt::format("a name or metadata is not UTF-8: {}", e.what())};
  }
  constexpr i64 kDataAlignBytes = 64;
  const auto length = static_cast<i64>(text.size());
  text.append(static_cast<std::size_t>(align_up(kLengthBytes + length, kDataAlignBytes) - kLengthBytes - length), ' ');
  const u64 stated = text.size();
  std::string bytes(sizeof(stated), '\0');
  std::memcpy(bytes.data(), &stated, sizeof(stated));
  return bytes + text;
}

Status write_safetensors(const std::string& path, std::span<const FileTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  const Result<std::string> header = safetensors_header(tensors, metadata);
  if (!header) return header.error();
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(*header))};
  for (const FileTensor& tensor : tensors) parts.emplace_back(tensor.data, static_cast<std::size_t>(tensor.bytes));
  return write_file(path, parts);
}

}  // namespace w4moe
