// The NVRTC backend of ops.h: every asm line of the project, one function each. See ops.h for the meaning of each function.
#pragma once

/// Declares a kernel entry with a fixed name.
#define W4MOE_KERNEL(threads, min_ctas) extern "C" __global__ void __launch_bounds__(threads, min_ctas)
/// A kernel's argument struct, read from constant memory.
#define W4MOE_ARGS(type) const __grid_constant__ type
/// A value that the host reads from the cubin.
#define W4MOE_FACT(name, value) extern "C" __constant__ unsigned long long name = (value)
#define W4MOE_INLINE __device__ __forceinline__

namespace w4moe::ops {

W4MOE_INLINE i32 thread_index() { return static_cast<i32>(threadIdx.x); }
W4MOE_INLINE i32 lane_index() { return static_cast<i32>(threadIdx.x & 31u); }
W4MOE_INLINE i32 warp_index() { return static_cast<i32>(threadIdx.x >> 5); }
W4MOE_INLINE i64 block_index_x() { return blockIdx.x; }
W4MOE_INLINE i64 block_index_y() { return blockIdx.y; }
W4MOE_INLINE i64 grid_size_x() { return gridDim.x; }

extern __shared__ __align__(1024) u8 w4moe_dynamic_shared[];
W4MOE_INLINE u8* shared_memory() { return w4moe_dynamic_shared; }
using SharedAddress = u32;
W4MOE_INLINE SharedAddress shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

W4MOE_INLINE void barrier() { __syncthreads(); }
W4MOE_INLINE void warp_sync() { __syncwarp(); }
W4MOE_INLINE u32 shuffle_up(u32 v, u32 delta) { return __shfl_up_sync(0xffffffffu, v, delta); }
W4MOE_INLINE u32 shuffle_xor(u32 v, u32 mask) { return __shfl_xor_sync(0xffffffffu, v, static_cast<int>(mask)); }
W4MOE_INLINE u32 shuffle(u32 v, u32 lane) { return __shfl_sync(0xffffffffu, v, static_cast<int>(lane)); }

W4MOE_INLINE u32 ballot(bool b) { return __ballot_sync(0xffffffffu, b ? 1 : 0); }
W4MOE_INLINE i32 count_bits(u32 v) { return __popc(v); }

W4MOE_INLINE void copy16_async(SharedAddress dst, const void* src, i32 valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(dst), "l"(src), "r"(valid_bytes) : "memory");
}
W4MOE_INLINE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <i32 N>
W4MOE_INLINE void copy_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

W4MOE_INLINE void load_matrix_x4(u32 (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

W4MOE_INLINE void store_shared_x4(SharedAddress p, const U32x4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               :: "r"(p), "r"(v.v[0]), "r"(v.v[1]), "r"(v.v[2]), "r"(v.v[3]) : "memory");
}
W4MOE_INLINE U32x4 load_shared_x4(const void* p) {
  U32x4 r;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]) : "r"(shared_address(p)) : "memory");
  return r;
}

template <DType T>
W4MOE_INLINE void mma_16816(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (T == DType::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <DType T>
W4MOE_INLINE void mma_16816_zero(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (T == DType::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  }
}

W4MOE_INLINE U32x4 load_stream_u32x4(const void* p) {
  U32x4 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]) : "l"(p));
  return r;
}
W4MOE_INLINE U32x2 load_stream_u32x2(const void* p) {
  U32x2 r;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(r.v[0]), "=r"(r.v[1]) : "l"(p));
  return r;
}
W4MOE_INLINE u32 load_stream_u32(const void* p) {
  u32 r;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(r) : "l"(p));
  return r;
}
W4MOE_INLINE u32 load_stream_u16(const void* p) {
  u16 r;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(r) : "l"(p));
  return r;
}

template <DType T>
W4MOE_INLINE u32 mul2(u32 a, u32 b) {
  u32 d;
  if constexpr (T == DType::bf16) {
    // fma with -0 rather than mul: bf16 mul needs sm_90, fma is there from sm_80 on.
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
}
template <DType T>
W4MOE_INLINE u32 sub2(u32 a, u32 b) {
  u32 d;
  if constexpr (T == DType::bf16) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(b), "r"(0xbf80bf80u), "r"(a));
  } else {
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
}

template <DType T>
W4MOE_INLINE u32 pack2(float lo, float hi) {
  u32 d;
  if constexpr (T == DType::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  }
  return d;
}

W4MOE_INLINE u32 broadcast_lo(u32 v) {
  u32 d;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(d) : "r"(v));
  return d;
}
W4MOE_INLINE u32 broadcast_hi(u32 v) {
  u32 d;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(d) : "r"(v));
  return d;
}

W4MOE_INLINE u32 bits_of(float v) { return __float_as_uint(v); }
W4MOE_INLINE float float_of(u32 v) { return __uint_as_float(v); }

template <DType T>
W4MOE_INLINE float unpack_lo(u32 v) {
  if constexpr (T == DType::bf16) {
    return float_of(v << 16);
  } else {
    float d;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(d) : "r"(v));
    return d;
  }
}
template <DType T>
W4MOE_INLINE float unpack_hi(u32 v) {
  if constexpr (T == DType::bf16) {
    return float_of(v & 0xffff0000u);
  } else {
    return unpack_lo<T>(v >> 16);
  }
}

W4MOE_INLINE float exp2_fast(float x) {
  float d;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}
W4MOE_INLINE float reciprocal_fast(float x) {
  float d;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}
W4MOE_INLINE float tanh_precise(float x) { return tanhf(x); }
W4MOE_INLINE float erf_precise(float x) { return erff(x); }

W4MOE_INLINE i32 atomic_add_shared(i32* p, i32 v) { return atomicAdd(p, v); }
W4MOE_INLINE i32 atomic_add(i32* p, i32 v) { return atomicAdd(p, v); }
W4MOE_INLINE void atomic_max(u32* p, u32 v) { atomicMax(p, v); }
W4MOE_INLINE void atomic_min(u32* p, u32 v) { atomicMin(p, v); }
W4MOE_INLINE void atomic_or(u32* p, u32 v) { atomicOr(p, v); }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <i32 Id, i32 Threads>
W4MOE_INLINE void barrier_of() { asm volatile("bar.sync %0, %1;" :: "n"(Id), "n"(Threads) : "memory"); }

W4MOE_INLINE void async_barrier_init(u64* b, i32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(b)), "r"(arrivals) : "memory");
}
W4MOE_INLINE void async_barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
W4MOE_INLINE void async_barrier_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(b)), "r"(bytes) : "memory");
}
W4MOE_INLINE void async_barrier_arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(b)) : "memory");
}
W4MOE_INLINE bool async_barrier_test(u64* b, u32 parity) {
  u32 done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
  return done != 0;
}
W4MOE_INLINE void async_barrier_wait(u64* b, u32 parity) {
  while (!async_barrier_test(b, parity)) {
  }
}

W4MOE_INLINE void copy_bulk(void* dst, const void* src, u32 bytes, u64* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(shared_address(dst)), "l"(src), "r"(bytes), "r"(shared_address(b)) : "memory");
}
W4MOE_INLINE void copy_arrive(u64* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(shared_address(b)) : "memory");
}
W4MOE_INLINE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

W4MOE_INLINE void store_matrix_x4_transposed(SharedAddress row, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(row), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

W4MOE_INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
W4MOE_INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <i32 N>
W4MOE_INLINE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
/// Start / 16, 1024 / 16 bytes between groups of eight rows, swizzle of 128 bytes.
W4MOE_INLINE u64 wgmma_tokens(const void* tile) {
  return static_cast<u64>((shared_address(tile) & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

template <i32 N>
W4MOE_INLINE void registers_increase() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
template <i32 N>
W4MOE_INLINE void registers_decrease() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
#endif

#if __CUDA_ARCH__ >= 900
W4MOE_INLINE void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
W4MOE_INLINE void grid_launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
W4MOE_INLINE void grid_wait() {}
W4MOE_INLINE void grid_launch_next() {}
#endif

}  // namespace w4moe::ops

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "device/ops_wgmma_ptx.h"
#endif
