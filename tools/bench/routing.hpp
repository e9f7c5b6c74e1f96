// The routing that the peers' baseline was measured with.
#pragma once

#include <string>

#include "runtime/reference/synthetic.hpp"

namespace w4moe::bench {

/// Replaces ids and router weights by those of FOLDER/route_E_k_m.bin: i32 ids, then f32 weights, [tokens][k] each
/// (tools/bench/make_routing.py writes them). io, naming the file, where it is missing or of another size; invalid_argument where an
/// id is no expert.
Status read_routing(const std::string& folder, const Shape& shape, i64 tokens, SyntheticInputs& inputs);

}  // namespace w4moe::bench
