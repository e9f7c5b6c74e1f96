#include "tools/device/launched_kernels.hpp"

#include <algorithm>

namespace w4moe {

std::string launched_kernels(const Plan& plan, i64 tokens) {
  if (tokens == 0) return "none";
  std::string text;
  for (const int index : plan.launched_by(plan.bucket_for(std::min(tokens, plan.chunk_tokens)))) {
    text += (text.empty() ? "" : " + ") + plan.kernels[static_cast<std::size_t>(index)].name;
  }
  return text;
}

}  // namespace w4moe
