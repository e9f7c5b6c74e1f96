// What every contract header builds on: fixed-width names, host/device marks and the only rounding helpers of the project.
// No #include at all: this text is read by g++, clang and NVRTC (without any header of the CUDA toolkit).
#pragma once

#if defined(__CUDACC__)
#define W4MOE_HD __host__ __device__
#define W4MOE_DEVICE __device__
#else
#define W4MOE_HD
#define W4MOE_DEVICE
#endif

namespace w4moe {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "fixed-width names");

/// Quotient rounded up; a >= 0, b > 0.
W4MOE_HD constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }

/// a rounded up to a multiple of b; a >= 0, b > 0.
W4MOE_HD constexpr i64 align_up(i64 a, i64 b) { return ceil_div(a, b) * b; }

W4MOE_HD constexpr i64 min_of(i64 a, i64 b) { return a < b ? a : b; }
W4MOE_HD constexpr i64 max_of(i64 a, i64 b) { return a > b ? a : b; }

}  // namespace w4moe
