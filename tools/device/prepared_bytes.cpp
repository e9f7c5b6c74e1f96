#include "tools/device/prepared_bytes.hpp"

#include <cstdint>

namespace w4moe {

Result<PreparedBytes> PreparedBytes::pack(const Problem& problem, const SourceWeights& source) {
  constexpr std::size_t kAlign = 256;
  const Result<i64> bytes = prepared_weight_bytes(problem);
  if (!bytes) return bytes.error();
  PreparedBytes prepared;
  prepared.size_ = static_cast<std::size_t>(*bytes);
  prepared.storage_.resize(prepared.size_ + kAlign);
  prepared.skip_ = (kAlign - reinterpret_cast<std::uintptr_t>(prepared.storage_.data()) % kAlign) % kAlign;
  PackOptions options;
  options.threads = 0;
  if (Status s = pack_on_cpu(problem, source, prepared.bytes(), options); !s) return s.error();
  return prepared;
}

}  // namespace w4moe
