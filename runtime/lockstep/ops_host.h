// The host backend of ops.h: kernels compiled by g++ or clang++ for the lock-step device. Selected by
// -DW4MOE_OPS_HEADER='"lockstep/ops_host.h"'. Memory is touched here, in the kernel's own code, so that sanitizers see the access
// with the kernel's source line; everything that concerns other threads is a call into the device (abi.h).
#pragma once

#include <math.h>
#include <string.h>

#include "abi.h"

#if defined(__SANITIZE_ADDRESS__)
#define W4MOE_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define W4MOE_HOST_ASAN 1
#endif
#endif
#if defined(W4MOE_HOST_ASAN)
#include <sanitizer/asan_interface.h>
#endif

#define W4MOE_HOST_EXPORT __attribute__((visibility("default")))
#define W4MOE_KERNEL(threads, min_ctas) extern "C" W4MOE_HOST_EXPORT void
#define W4MOE_ARGS(type) const type&
#define W4MOE_FACT(name, value)                            \
  extern "C" {                                             \
  W4MOE_HOST_EXPORT extern const unsigned long long name;  \
  const unsigned long long name = (value);                 \
  }
#define W4MOE_INLINE inline

/// Set by the loader before the first launch.
extern "C" {
W4MOE_HOST_EXPORT extern w4moe::lockstep::Host* w4moe_lockstep_host;
#if !defined(W4MOE_LOCKSTEP_IN_PROGRAM)  // several kernels linked into one program share the device's own variable
w4moe::lockstep::Host* w4moe_lockstep_host = nullptr;
#endif
}

/// The caller's place, as default arguments: kernels call the functions below as ops.h lists them.
#define W4MOE_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace w4moe::ops {

inline lockstep::Host& host() { return *w4moe_lockstep_host; }

inline i32 thread_index() { return host().current->thread; }
inline i32 lane_index() { return host().current->lane; }
inline i32 warp_index() { return host().current->warp; }
inline i64 block_index_x() { return host().current->block_x; }
inline i64 block_index_y() { return host().current->block_y; }
inline i64 grid_size_x() { return host().current->grid_x; }
inline u8* shared_memory() { return host().current->shared; }

inline void barrier(W4MOE_SITE) { host().barrier({file, line}); }
inline void warp_sync(W4MOE_SITE) { host().warp_op(lockstep::WarpOp::warp_sync, nullptr, {file, line}); }

inline u32 shuffle_with(lockstep::WarpOp op, u32 v, u32 argument, lockstep::Site site) {
  lockstep::ShuffleOperand operand{v, argument, 0};
  host().warp_op(op, &operand, site);
  return operand.result;
}
inline u32 shuffle_up(u32 v, u32 delta, W4MOE_SITE) {
  return shuffle_with(lockstep::WarpOp::shuffle_up, v, delta, {file, line});
}
inline u32 shuffle_xor(u32 v, u32 mask, W4MOE_SITE) {
  return shuffle_with(lockstep::WarpOp::shuffle_xor, v, mask, {file, line});
}
inline u32 shuffle(u32 v, u32 lane, W4MOE_SITE) {
  return shuffle_with(lockstep::WarpOp::shuffle, v, lane, {file, line});
}

inline u32 ballot(bool b, W4MOE_SITE) { return shuffle_with(lockstep::WarpOp::ballot, b ? 1 : 0, 0, {file, line}); }
inline i32 count_bits(u32 v) { return __builtin_popcount(v); }

inline bool is_aligned(const void* p, u64 bytes) { return (reinterpret_cast<u64>(p) & (bytes - 1)) == 0; }

using SharedAddress = u8*;
inline SharedAddress shared_address(const void* p) { return static_cast<u8*>(const_cast<void*>(p)); }

/// Until its thread has waited for it, the destination holds NaNs in every type; under AddressSanitizer touching it is an error.
inline void copy16_async(void* dst, const void* src, i32 valid_bytes, W4MOE_SITE) {
  if (!is_aligned(dst, 16)) host().fail("copy16_async: destination is not 16-byte aligned", {file, line});
  if (!is_aligned(src, 16)) host().fail("copy16_async: source is not 16-byte aligned", {file, line});
  if (valid_bytes < 0 || valid_bytes > 16) host().fail("copy16_async: valid bytes are not in 0..16", {file, line});
  unsigned char data[16] = {};
  if (valid_bytes > 0) memcpy(data, src, static_cast<u64>(min_of(valid_bytes, 16)));
  host().copy_issue(dst, data, {file, line});
  memset(dst, 0xff, 16);
#if defined(W4MOE_HOST_ASAN)
  __asan_poison_memory_region(dst, 16);
#endif
}
inline void copy_commit() { host().copy_commit(); }
template <i32 N>
inline void copy_wait() {
  while (const lockstep::LandedCopy* copy = host().copy_retire(N)) {
#if defined(W4MOE_HOST_ASAN)
    __asan_unpoison_memory_region(copy->dst, 16);
#endif
    memcpy(copy->dst, copy->data, 16);
  }
}

inline void store_shared_x4(void* p, const U32x4& v, W4MOE_SITE) {
  if (!is_aligned(p, 16)) host().fail("store_shared_x4: address is not 16-byte aligned", {file, line});
  host().shared_access(p, true, {file, line});
  memcpy(p, &v, 16);
}
inline U32x4 load_shared_x4(const void* p, W4MOE_SITE) {
  if (!is_aligned(p, 16)) host().fail("load_shared_x4: address is not 16-byte aligned", {file, line});
  host().shared_access(p, false, {file, line});
  U32x4 v;
  memcpy(&v, p, 16);
  return v;
}

inline void load_matrix_x4(u32 (&r)[4], const void* row, W4MOE_SITE) {
  if (!is_aligned(row, 16)) host().fail("load_matrix_x4: row is not 16-byte aligned", {file, line});
  host().shared_access(row, false, {file, line});
  lockstep::MatrixOperand operand{{}, r};
  memcpy(operand.row, row, 16);
  host().warp_op(lockstep::WarpOp::load_matrix, &operand, {file, line});
}

/// The 16 products of an output are exact, their sum with the accumulator is rounded to fp32 once.
template <DType T>
inline void mma_16816(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, W4MOE_SITE) {
  static_assert(T == DType::bf16 || T == DType::f16, "16-bit operands");
  lockstep::MmaOperand operand{d, a, {b0, b1}};
  host().warp_op(T == DType::bf16 ? lockstep::WarpOp::mma_bf16 : lockstep::WarpOp::mma_f16, &operand, {file, line});
}

template <DType T>
inline void mma_16816_zero(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, W4MOE_SITE) {
  for (float& v : d) v = 0.0f;
  mma_16816<T>(d, a, b0, b1, file, line);
}

template <class Value>
inline Value load_stream(const void* p, lockstep::Site site) {
  if (!is_aligned(p, sizeof(Value))) host().fail("streaming load: address is not aligned to the width of the load", site);
  Value v;
  memcpy(&v, p, sizeof(Value));
  return v;
}
inline U32x4 load_stream_u32x4(const void* p, W4MOE_SITE) { return load_stream<U32x4>(p, {file, line}); }
inline U32x2 load_stream_u32x2(const void* p, W4MOE_SITE) { return load_stream<U32x2>(p, {file, line}); }
inline u32 load_stream_u32(const void* p, W4MOE_SITE) { return load_stream<u32>(p, {file, line}); }
inline u32 load_stream_u16(const void* p, W4MOE_SITE) { return load_stream<u16>(p, {file, line}); }

inline u32 bits_of(float v) { return __builtin_bit_cast(u32, v); }
inline float float_of(u32 v) { return __builtin_bit_cast(float, v); }

/// Rounds to the 16-bit type, to nearest even; too large becomes infinity, NaN the one NaN the machine yields.
template <DType T>
inline u32 half_bits(double v) {
  constexpr i32 kMantissa = T == DType::bf16 ? 7 : 10;
  constexpr i32 kMinExponent = T == DType::bf16 ? -126 : -14;
  constexpr u64 kInfinity = T == DType::bf16 ? 0x7f80 : 0x7c00;
  const u64 bits = __builtin_bit_cast(u64, v);
  const u32 sign = static_cast<u32>(bits >> 48) & 0x8000u;
  const i32 field = static_cast<i32>(bits >> 52) & 0x7ff;
  const u64 fraction = bits & 0xfffffffffffffull;
  if (field == 0x7ff) return fraction != 0 ? 0x7fffu : sign | static_cast<u32>(kInfinity);
  if (field == 0) return sign;  // zero, or far below half the smallest subnormal
  const i32 exponent = field - 1023;
  const i32 base = exponent < kMinExponent ? kMinExponent : exponent;
  const i32 drop = base - kMantissa - (exponent - 52);  // low bits of the 53-bit significand that do not fit
  if (drop > 54) return sign;
  const u64 significand = fraction | (1ull << 52);
  u64 kept = significand >> drop;
  const u64 rest = significand & ((1ull << drop) - 1);
  const u64 half = 1ull << (drop - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  const u64 magnitude = (static_cast<u64>(base - kMinExponent) << kMantissa) + kept;
  return sign | static_cast<u32>(magnitude < kInfinity ? magnitude : kInfinity);
}

/// Exact value of the low half.
template <DType T>
inline float unpack_lo(u32 v) {
  if constexpr (T == DType::bf16) {
    return float_of(v << 16);
  } else {
    const u32 sign = (v & 0x8000u) << 16;
    const u32 field = (v >> 10) & 0x1fu;
    const u32 fraction = v & 0x3ffu;
    if (field == 0x1f) return float_of(sign | 0x7f800000u | (fraction << 13));
    if (field == 0) return float_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24f));
    return float_of(sign | ((field + 112) << 23) | (fraction << 13));
  }
}
template <DType T>
inline float unpack_hi(u32 v) {
  return unpack_lo<T>(v >> 16);
}

inline u32 broadcast_lo(u32 v) { return (v & 0xffffu) * 0x00010001u; }
inline u32 broadcast_hi(u32 v) { return (v >> 16) * 0x00010001u; }

template <DType T>
inline u32 pack2(float lo, float hi) {
  return half_bits<T>(lo) | (half_bits<T>(hi) << 16);
}
// Products of two 16-bit values are exact in a double. A difference is too, unless the exponents are more than 45 apart; then it
// lies so near the larger operand that it rounds to it either way.
template <DType T>
inline u32 mul2(u32 a, u32 b) {
  const u32 lo = half_bits<T>(static_cast<double>(unpack_lo<T>(a)) * unpack_lo<T>(b));
  const u32 hi = half_bits<T>(static_cast<double>(unpack_hi<T>(a)) * unpack_hi<T>(b));
  return lo | (hi << 16);
}
template <DType T>
inline u32 sub2(u32 a, u32 b) {
  const u32 lo = half_bits<T>(static_cast<double>(unpack_lo<T>(a)) - unpack_lo<T>(b));
  const u32 hi = half_bits<T>(static_cast<double>(unpack_hi<T>(a)) - unpack_hi<T>(b));
  return lo | (hi << 16);
}

/// Subnormals count as zeros of their sign, as in the machine's approximations.
inline float flushed(float x) { return (bits_of(x) & 0x7f800000u) == 0 ? float_of(bits_of(x) & 0x80000000u) : x; }
inline float exp2_fast(float x) { return flushed(exp2f(flushed(x))); }
inline float reciprocal_fast(float x) { return flushed(1.0f / flushed(x)); }
inline float tanh_precise(float x) { return tanhf(x); }
inline float erf_precise(float x) { return erff(x); }

inline i32 atomic_add_shared(i32* p, i32 v) {
  host().yield_point();
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
inline i32 atomic_add(i32* p, i32 v) {
  host().yield_point();
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
inline void atomic_max(u32* p, u32 v) {
  host().yield_point();
  u32 seen = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (seen < v && !__atomic_compare_exchange_n(p, &seen, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}
inline void atomic_min(u32* p, u32 v) {
  host().yield_point();
  u32 seen = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (seen > v && !__atomic_compare_exchange_n(p, &seen, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}
inline void atomic_or(u32* p, u32 v) {
  host().yield_point();
  __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}

template <i32 Id, i32 Threads>
inline void barrier_of(W4MOE_SITE) {
  host().named_barrier(Id, Threads, {file, line});
}
inline void async_barrier_init(u64* b, i32 arrivals, W4MOE_SITE) { host().async_barrier_init(b, arrivals, {file, line}); }
inline void async_barrier_init_fence() { host().async_barrier_init_fence(); }
inline void async_barrier_expect(u64* b, u32 bytes, W4MOE_SITE) { host().async_barrier_arrive(b, bytes, {file, line}); }
inline void async_barrier_arrive(u64* b, W4MOE_SITE) { host().async_barrier_arrive(b, 0, {file, line}); }
inline bool async_barrier_test(u64* b, u32 parity, W4MOE_SITE) { return host().async_barrier_test(b, parity, {file, line}); }
inline void async_barrier_wait(u64* b, u32 parity, W4MOE_SITE) { host().async_barrier_wait(b, parity, {file, line}); }

/// The source is read here, so that AddressSanitizer sees it; the destination holds NaNs until the copy lands.
inline void copy_bulk(void* dst, const void* src, u32 bytes, u64* b, W4MOE_SITE) {
  if (!is_aligned(dst, 16)) host().fail("copy_bulk: destination is not 16-byte aligned", {file, line});
  if (!is_aligned(src, 16)) host().fail("copy_bulk: source is not 16-byte aligned", {file, line});
  if (bytes % 16 != 0 || bytes == 0) host().fail("copy_bulk: the size is not a positive multiple of 16 bytes", {file, line});
  u8* content = static_cast<u8*>(__builtin_malloc(bytes));
  memcpy(content, src, bytes);
  host().copy_bulk({dst, content, bytes, b}, {file, line});
  __builtin_free(content);
  memset(dst, 0xff, bytes);
#if defined(W4MOE_HOST_ASAN)
  __asan_poison_memory_region(dst, bytes);
#endif
}
inline void copy_arrive(u64* b, W4MOE_SITE) { host().copy_arrive(b, {file, line}); }
inline void fence_async_shared() { host().fence_async_shared(); }

inline void store_matrix_x4_transposed(SharedAddress row, u32 r0, u32 r1, u32 r2, u32 r3, W4MOE_SITE) {
  if (!is_aligned(row, 16)) host().fail("store_matrix_x4_transposed: row is not 16-byte aligned", {file, line});
  lockstep::StoreMatrixOperand operand{{r0, r1, r2, r3}, {}};
  host().warp_op(lockstep::WarpOp::store_matrix, &operand, {file, line});
  host().shared_access(row, true, {file, line});
  memcpy(row, operand.row, 16);
}

inline void wgmma_fence() { host().wgmma_fence(); }
inline void wgmma_commit() { host().wgmma_commit(); }
template <i32 N>
inline void wgmma_wait(W4MOE_SITE) {
  host().wgmma_wait(N, {file, line});
}
/// The machine's descriptor, with the distance from the base of shared memory for the address.
inline u64 wgmma_tokens(const void* tile) {
  const u64 offset = static_cast<u64>(static_cast<const u8*>(tile) - host().current->shared);
  return (offset & 0x3ffffu) >> 4 | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
template <DType T, i32 N>
struct WgmmaRs {
  static_assert(T == DType::bf16 || T == DType::f16, "16-bit operands");
  static inline void add(float (&d)[N / 2], const u32 (&a)[4], u64 tokens, W4MOE_SITE) {
    host().wgmma_add({d, a, tokens, N, T == DType::bf16}, {file, line});
  }
};
/// Registers are not modelled.
template <i32 N>
inline void registers_increase() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "setmaxnreg");
}
template <i32 N>
inline void registers_decrease() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "setmaxnreg");
}

inline void grid_wait(W4MOE_SITE) { host().grid_wait({file, line}); }
inline void grid_launch_next() { host().grid_launch_next(); }

}  // namespace w4moe::ops
