// The references' inner loop. Its results do not depend on the width of the machine's vectors: every sum has its own order.
#include <cstring>

#include "runtime/reference/routes.hpp"

namespace w4moe {
namespace {

template <class T, int kVectorBytes>
__attribute__((always_inline)) inline void accumulate_by(const T* weights, const T* rows, i64 count, T (&sums)[kRouteBlock]) {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  constexpr int kVectors = kRouteBlock * sizeof(T) / kVectorBytes;
  Vector total[kVectors];
  std::memcpy(total, sums, sizeof(total));
  for (i64 i = 0; i < count; ++i) {
    const T weight = weights[i];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Vector row;
      std::memcpy(&row, reinterpret_cast<const char*>(rows + i * kRouteBlock) + v * kVectorBytes, sizeof(row));
      total[v] += row * weight;
    }
  }
  std::memcpy(sums, total, sizeof(total));
}

#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2"))) void accumulate_avx2(const T* weights, const T* rows, i64 count, T (&sums)[kRouteBlock]) {
  accumulate_by<T, 32>(weights, rows, count, sums);
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#endif

template <class T>
void accumulate_any(const T* weights, const T* rows, i64 count, T (&sums)[kRouteBlock]) {
#if defined(__x86_64__)
  if (has_avx2()) return accumulate_avx2<T>(weights, rows, count, sums);
#endif
  accumulate_by<T, 16>(weights, rows, count, sums);
}

}  // namespace

void accumulate(const float* weights, const float* rows, i64 count, float (&sums)[kRouteBlock]) {
  accumulate_any(weights, rows, count, sums);
}

void accumulate(const double* weights, const double* rows, i64 count, double (&sums)[kRouteBlock]) {
  accumulate_any(weights, rows, count, sums);
}

}  // namespace w4moe
