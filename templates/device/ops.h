// The machine, as kernels see it: every instruction beyond plain C++ is one function here, and nothing else in templates/ touches
// the machine. Two backends implement this interface: ops_ptx.h for NVRTC and the host model of the lock-step device, which a
// host build selects by defining W4MOE_OPS_HEADER.
//
//   thread_index(), lane_index(), warp_index()      position inside the CTA (one-dimensional CTAs)
//   block_index_x(), block_index_y()                position of the CTA in the grid
//   grid_size_x()                                   CTAs along x
//   shared_memory()                                 base of the CTA's dynamic shared memory, 1024-byte aligned
//   SharedAddress, shared_address(p)                a place in shared memory that instructions take; adding bytes moves it
//   barrier()                                       all threads of the CTA
//   warp_sync()                                     all lanes of the warp
//   shuffle_up(v, delta), shuffle_xor(v, mask), shuffle(v, lane)   full-warp exchange of a u32
//   ballot(b), count_bits(v)                        bit l is lane l's b; bits set in a u32
//   copy16_async(dst_shared, src_global, valid)     16 bytes to shared memory; bytes past `valid` (0..16) become zero and are
//                                                   not read; both addresses 16-byte aligned
//   copy_commit(), copy_wait<N>()                   closes a group of copies; waits until at most N groups are open
//   load_matrix_x4(r, row)                          ldmatrix: lane l gives the address of row l % 8 of 8x8 matrix l / 8;
//                                                   r[i] holds two 16-bit elements of matrix i, row lane / 4, columns 2 (lane % 4) ..
//   mma_16816<T>(d, a, b0, b1)                      d[16x8] += a[16x16] b[16x8], T = bf16 or f16, fp32 accumulators
//   mma_16816_zero<T>(d, a, b0, b1)                 the same with d = 0 before
//   store_shared_x4(p, v), load_shared_x4(p)        plain 16-byte shared accesses
//   load_stream_u32x4 / u32x2 / u32 / u16(p)        read-once global loads that stay out of L1; issued where they are written
//   mul2<T>(a, b), sub2<T>(a, b)                    packed pair arithmetic, round to nearest even, subnormals kept
//   pack2<T>(lo, hi)                                two floats to a pair, round to nearest even
//   unpack_lo<T>(v), unpack_hi<T>(v)                exact
//   broadcast_lo(v), broadcast_hi(v)                one 16-bit half of v in both halves
//   exp2_fast(x), reciprocal_fast(x)                about 2 units in the last place
//   tanh_precise(x), erf_precise(x)                 the library functions
//   bits_of(float), float_of(u32)
//   atomic_add_shared(p, v), atomic_add(p, v)       return the old value
//   atomic_max(p, v), atomic_min(p, v), atomic_or(p, v)   u32 in global memory, result unused
//
// sm_90a only:
//   barrier_of<Id, Threads>()                       named barrier Id (1..15) of Threads threads
//   async_barrier_init(b, arrivals), async_barrier_init_fence()   mbarriers, 8 bytes in shared memory; the fence before first use
//   async_barrier_expect(b, bytes)                  arrives, and holds the phase until `bytes` more have been copied
//   async_barrier_arrive(b), async_barrier_wait(b, parity)
//   copy_bulk(dst, src, bytes, b)                   bytes % 16 == 0, both ends 16-byte aligned; counts on b as it lands
//   copy_arrive(b)                                  arrives on b once all copy16_async of this thread so far have landed
//   fence_async_shared()                            what this thread sees in shared memory, wgmma sees too
//   store_matrix_x4_transposed(row, r0, r1, r2, r3) stmatrix: lane l gives the address of row l % 8 of 8x8 matrix l / 8; a lane
//                                                   holds column lane / 4, rows 2 (lane % 4) .. of each
//   wgmma_tokens(tile)                              operand B: rows of 64 K (128 bytes), swizzled in groups of eight rows;
//                                                   adding 2 moves 16 K on
//   WgmmaRs<T, N>::add(d, a, tokens)                starts d[64xN] += a[64x16] tokens[16xN]; d and a are not touched until waited for
//   wgmma_fence(), wgmma_commit(), wgmma_wait<N>()  before the first of a group; closes a group; until at most N groups are open
//   registers_increase<N>(), registers_decrease<N>()   a warpgroup's registers per thread
//
//   grid_wait(), grid_launch_next()                 programmatic dependent launch: wait for the grid before; let the next one start
#pragma once

#include "contract/prelude.h"
#include "contract/types.h"

namespace w4moe::ops {

/// Aligned, so that a copy through a pointer is one access.
struct alignas(16) U32x4 {
  u32 v[4];
};
struct alignas(8) U32x2 {
  u32 v[2];
};

}  // namespace w4moe::ops

#if defined(W4MOE_OPS_HEADER)
#include W4MOE_OPS_HEADER
#else
#include "device/ops_ptx.h"
#endif
