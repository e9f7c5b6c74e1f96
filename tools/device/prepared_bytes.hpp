// Prepared weights in host memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "w4moe/weights.hpp"

namespace w4moe {

/// Prepared weights in memory aligned as the packer asks.
class PreparedBytes {
 public:
  /// Packs the layer on the CPU.
  static Result<PreparedBytes> pack(const Problem& problem, const SourceWeights& source);
  std::span<std::byte> bytes() { return {storage_.data() + skip_, size_}; }
  std::span<const std::byte> bytes() const { return {storage_.data() + skip_, size_}; }

 private:
  std::vector<std::byte> storage_;
  std::size_t skip_ = 0;
  std::size_t size_ = 0;
};

}  // namespace w4moe
