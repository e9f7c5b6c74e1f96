// The tensors of one expert, cut out of a source, and the memory they cover.
#pragma once

#include "w4moe/weights.hpp"

namespace w4moe {

/// Bytes from a tensor's first element to the end of its last.
i64 covered_bytes(const SourceTensor& tensor);

/// The same problem with one expert.
Problem one_expert_problem(Problem problem);

/// A source for one_expert_problem() that points into `source`: codes, scales and zero points of one expert, without biases and
/// globals.
SourceWeights slice_expert(const Problem& problem, const SourceWeights& source, i64 expert);

/// Calls visit(tensor) for every tensor of codes, scales and zero points; a fused gate_up is visited once.
template <class Source, class Visit>
void for_each_weight_tensor(Source& source, const Visit& visit) {
  for (auto* matrix : {&source.gate_up, &source.gate, &source.up, &source.down}) {
    for (auto* operand : {&matrix->codes, &matrix->scales, &matrix->zeros}) {
      for (auto& tensor : *operand) visit(tensor);
    }
  }
}

}  // namespace w4moe
