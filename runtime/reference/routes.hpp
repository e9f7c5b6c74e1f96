// The routes of a call, grouped by expert, and blocks of their rows in the form the references' inner loop reads.
#pragma once

#include <vector>

#include "runtime/reference/reference.hpp"

namespace w4moe {

struct Route {
  i64 out_row = 0;   ///< row of the output, counted over the computed tokens
  i64 token = 0;
  i64 j = 0;         ///< place in the token's top-k
  float weight = 0;  ///< router weight
};

/// Tokens to compute: the options' list, or all.
std::vector<i64> computed_tokens(const MoeInputs& inputs, const ReferenceOptions& options);

/// Valid routes of the computed tokens by expert, in token and top-k order.
std::vector<std::vector<Route>> routes_by_expert(const Problem& problem, const MoeInputs& inputs, const std::vector<i64>& tokens);

/// Checks sizes and types that both references rely on.
Status check_reference(const Problem& problem, const SourceWeights& source, const MoeInputs& inputs, std::size_t out_elems,
                       const ReferenceOptions& options);

/// Element (token, column) of the activations.
float token_value(const Problem& problem, const MoeInputs& inputs, i64 token, i64 column);

/// Routes per block: one weight row is multiplied with this many routes at a time.
inline constexpr i64 kRouteBlock = 8;

/// Rows of routes, transposed in blocks of kRouteBlock: element (route, k) at [route / 8][k][route % 8]. Missing routes are zero.
template <class T>
class RouteRows {
 public:
  RouteRows(i64 routes, i64 k) : k_(k), values_(static_cast<std::size_t>((routes / kRouteBlock + 1) * k * kRouteBlock)) {}
  T& at(i64 route, i64 k) { return values_[static_cast<std::size_t>((route / kRouteBlock * k_ + k) * kRouteBlock + route % kRouteBlock)]; }
  const T* block(i64 first_route) const { return &values_[static_cast<std::size_t>(first_route * k_)]; }

 private:
  i64 k_;
  std::vector<T> values_;
};

/// sums[r] += weights[i] * rows[i][r] for i in 0..count-1, ascending, each sum in its own order and without fused rounding.
void accumulate(const float* weights, const float* rows, i64 count, float (&sums)[kRouteBlock]);
void accumulate(const double* weights, const double* rows, i64 count, double (&sums)[kRouteBlock]);

}  // namespace w4moe
