// C++ values as the C structures have them, with the memory that those point to.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "w4moe/problem.hpp"
#include "w4moe/w4moe.h"
#include "w4moe/weights.hpp"

namespace w4moe::capi {

/// A problem. Neither copied nor moved: the structure points into it.
class OwnedProblem {
 public:
  explicit OwnedProblem(const Problem& from);
  OwnedProblem(const OwnedProblem&) = delete;
  OwnedProblem& operator=(const OwnedProblem&) = delete;

  const w4moe_problem& c() const { return c_; }

 private:
  std::string name_, format_, activation_;
  w4moe_problem c_;
};

/// A layer's source. The tensors' data stay where they are.
class OwnedSource {
 public:
  explicit OwnedSource(SourceWeights from);
  OwnedSource(const OwnedSource&) = delete;
  OwnedSource& operator=(const OwnedSource&) = delete;

  const w4moe_source_weights& c() const { return c_; }

 private:
  w4moe_operand operand(const SourceOperand& from);
  w4moe_matrix matrix(const SourceMatrix& from);
  const int64_t* numbers(const std::vector<i64>& from);

  SourceWeights from_;
  std::deque<std::vector<w4moe_tensor>> tensors_;
  std::deque<std::vector<int64_t>> numbers_;
  w4moe_source_weights c_;
};

}  // namespace w4moe::capi
