// Reading and writing safetensors files. Nothing in a file is believed: every number of the header is checked against the others
// and against the file before a tensor is handed out.
//
//   file   := length (u64, little-endian) header data
//   header := JSON object of `length` bytes: name -> {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__" -> strings
//   data   := the tensors without gaps or overlaps; offsets count from its first byte
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/prelude.h"
#include "w4moe/error.hpp"

namespace w4moe {

/// Longest header that is read: as the format's own reader has it.
inline constexpr i64 kMaxSafetensorsHeaderBytes = 100'000'000;

struct FileTensor {
  std::string name;
  std::string dtype;            ///< as the file spells it: "U8", "F8_E4M3", "BF16", ...
  std::vector<i64> shape;
  const std::byte* data = nullptr;  ///< no alignment is promised
  i64 bytes = 0;
};

/// Bits of one element of a dtype, 0 for an unknown one. Known: BOOL, F4, U8, I8, F8_E4M3, F8_E5M2, F8_E8M0, 16-, 32- and 64-bit types.
i64 safetensors_dtype_bits(std::string_view dtype);

/// One file or one range of bytes. Tensors point into it; they are good as long as a copy of this lives.
class SafetensorsFile {
 public:
  /// Maps a file read-only. Whoever truncates it while it is mapped ends the reading process (SIGBUS): that is the system's rule.
  static Result<SafetensorsFile> open(const std::string& path);

  /// Reads the bytes of a file that the caller keeps; `name` is for messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::vector<FileTensor>& tensors() const { return tensors_; }  ///< ascending by name
  const FileTensor* find(std::string_view name) const;                 ///< null if there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::string name_;
  std::shared_ptr<const void> mapping_;
  std::vector<FileTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes the tensors in the order given; their `bytes` must fit dtype and shape. The file appears under its name only when it is
/// complete.
Status write_safetensors(const std::string& path, std::span<const FileTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

/// The bytes that write_safetensors puts in front of the data.
Result<std::string> safetensors_header(std::span<const FileTensor> tensors, const std::map<std::string, std::string>& metadata = {});

}  // namespace w4moe
