#include "tools/bench/routing.hpp"

#include <fstream>

#include "generator/problem/errors.hpp"

namespace w4moe::bench {

Status read_routing(const std::string& folder, const Shape& shape, i64 tokens, SyntheticInputs& inputs) {
  const std::string path = fmt::format("{}/route_{}_{}_{}.bin", folder, shape.experts, shape.topk, tokens);
  std::ifstream in(path, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(inputs.ids.size() * sizeof(i32));
  in.read(reinterpret_cast<char*>(inputs.ids.data()), bytes);
  in.read(reinterpret_cast<char*>(inputs.weights.data()), bytes);
  if (!in || in.peek() != std::ifstream::traits_type::eof()) {
    return Error{ErrorCode::io, fmt::format("{}: missing, or not of {} bytes (tools/bench/make_routing.py writes it)", path, 2 * bytes)};
  }
  for (const i32 id : inputs.ids) {
    if (id < 0 || id >= shape.experts) return invalid_argument("{}: expert {} of {}", path, id, shape.experts);
  }
  return {};
}

}  // namespace w4moe::bench
