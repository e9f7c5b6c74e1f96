// Each intrinsic of device/ops.h on bits from outside, in one CTA of a warpgroup: compiled by NVRTC for a GPU, and by the host
// compiler for the lock-step device. Both must write the same words.
#include "device/ops.h"

#if defined(W4MOE_OPS_HEADER) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define W4MOE_CONFORMANCE_SM90 1
#endif

namespace w4moe {

struct ConformanceArgs {
  const u32* in = nullptr;   ///< [128 threads][16 words] of any bits
  u32* out = nullptr;        ///< [128 threads][16 words], filled with 0xffffffff
  i32 which = 0;
};

inline constexpr i32 kWords = 16;

/// -3 .. 3: sums of products are exact in any order.
W4MOE_INLINE float small_integer(u32 bits) { return static_cast<float>(static_cast<i32>(bits % 7u) - 3); }
/// In (-2, 2), of any mantissa.
W4MOE_INLINE float ordinary(u32 bits) {
  return ops::float_of((bits & 0x807fffffu) | (126u - (bits >> 23 & 3u)) << 23);
}

template <DType T>
W4MOE_INLINE u32 small_pair(u32 bits) { return ops::pack2<T>(small_integer(bits & 0xffffu), small_integer(bits >> 16)); }
template <DType T>
W4MOE_INLINE u32 ordinary_pair(u32 bits) { return ops::pack2<T>(ordinary(bits), ordinary(bits * 2654435761u + 1u)); }

W4MOE_INLINE u8* words_in_shared(i32 thread) { return ops::shared_memory() + thread * 16; }

W4MOE_INLINE void keep(u32* out, const ops::U32x4& v) {
  for (i32 i = 0; i < 4; ++i) out[i] = v.v[i];
}

W4MOE_INLINE ops::U32x4 first_words(const u32* in) { return ops::U32x4{{in[0], in[1], in[2], in[3]}}; }

template <DType T, bool Small>
W4MOE_INLINE void mma(const u32* in, u32* out) {
  u32 a[4];
  u32 b[2];
  for (i32 i = 0; i < 4; ++i) a[i] = Small ? small_pair<T>(in[i]) : ordinary_pair<T>(in[i]);
  for (i32 i = 0; i < 2; ++i) b[i] = Small ? small_pair<T>(in[4 + i]) : ordinary_pair<T>(in[4 + i]);
  float d[4];
  for (i32 i = 0; i < 4; ++i) d[i] = Small ? small_integer(in[6 + i]) : ordinary(in[6 + i]);
  ops::mma_16816<T>(d, a, b[0], b[1]);
  for (i32 i = 0; i < 4; ++i) out[i] = ops::bits_of(d[i]);
}

#if defined(W4MOE_CONFORMANCE_SM90)
W4MOE_INLINE u64* barrier_word(i32 i) { return reinterpret_cast<u64*>(ops::shared_memory() + 8192) + i; }

W4MOE_INLINE void init_barrier(i32 arrivals) {
  if (ops::thread_index() == 0) {
    ops::async_barrier_init(barrier_word(0), arrivals);
    ops::async_barrier_init_fence();
  }
  ops::barrier();
}

/// Tokens of 64 K, swizzled, and 64 rows of A: four k16 steps.
template <DType T, i32 N>
W4MOE_INLINE void wgmma(const u32* in, u32* out) {
  const i32 thread = ops::thread_index();
  const u32* all = in - thread * kWords;
  for (i32 i = thread; i < N * 8; i += 128) {
    const i32 token = i / 8;
    const i32 vector = i % 8;
    ops::U32x4 v;
    for (i32 j = 0; j < 4; ++j) v.v[j] = small_pair<T>(all[(i * 4 + j) % (128 * kWords)]);
    ops::store_shared_x4(ops::shared_address(ops::shared_memory() + token * 128 + ((vector ^ token) & 7) * 16), v);
  }
  ops::fence_async_shared();
  ops::barrier();
  float d[N / 2];
  for (i32 i = 0; i < N / 2; ++i) d[i] = small_integer(in[i % kWords]);
  u32 a[4][4];
  for (i32 step = 0; step < 4; ++step) {
    for (i32 i = 0; i < 4; ++i) a[step][i] = small_pair<T>(in[step * 4 + i] >> 3);
  }
  const u64 tokens = ops::wgmma_tokens(ops::shared_memory());
  ops::wgmma_fence();
  ops::WgmmaRs<T, N>::add(d, a[0], tokens);
  ops::WgmmaRs<T, N>::add(d, a[1], tokens + 2);
  ops::WgmmaRs<T, N>::add(d, a[2], tokens + 4);
  ops::WgmmaRs<T, N>::add(d, a[3], tokens + 6);
  ops::wgmma_commit();
  ops::wgmma_wait<0>();
  for (i32 i = 0; i < kWords; ++i) out[i] = ops::bits_of(d[i * (N / 2) / kWords]);
}
#endif

/// `in` and `out` are the thread's own words.
W4MOE_INLINE void run_case(i32 which, const u32* in, u32* out, const ConformanceArgs& args) {
  const i32 thread = ops::thread_index();
  const i32 lane = ops::lane_index();
  switch (which) {
    case 0:
      out[0] = ops::shuffle_up(in[0], 1);
      out[1] = ops::shuffle_up(in[1], 16);
      out[2] = ops::shuffle_xor(in[2], 5);
      out[3] = ops::shuffle(in[3], in[4]);
      out[4] = ops::ballot((in[5] & 4u) != 0);
      out[5] = static_cast<u32>(ops::count_bits(in[6]));
      break;
    case 1:
      ops::copy16_async(ops::shared_address(words_in_shared(thread)), in, lane % 17);
      ops::copy_commit();
      ops::copy_wait<0>();
      keep(out, ops::load_shared_x4(words_in_shared(thread)));
      break;
    case 2: {
      ops::store_shared_x4(ops::shared_address(words_in_shared(thread)), first_words(in));
      ops::barrier();
      u32 r[4];
      ops::load_matrix_x4(r, ops::shared_address(words_in_shared(static_cast<i32>(in[5] % 128u))));
      for (i32 i = 0; i < 4; ++i) out[i] = r[i];
      break;
    }
    case 3: mma<DType::bf16, true>(in, out); break;
    case 4: mma<DType::f16, true>(in, out); break;
    case 5: mma<DType::bf16, false>(in, out); break;
    case 6: mma<DType::f16, false>(in, out); break;
    case 7:
      out[0] = ops::mul2<DType::bf16>(in[0], in[1]);
      out[1] = ops::sub2<DType::bf16>(in[2], in[3]);
      out[2] = ops::pack2<DType::bf16>(ops::float_of(in[4]), ops::float_of(in[5]));
      break;
    case 8:
      out[0] = ops::mul2<DType::f16>(in[0], in[1]);
      out[1] = ops::sub2<DType::f16>(in[2], in[3]);
      out[2] = ops::pack2<DType::f16>(ops::float_of(in[4]), ops::float_of((in[5] & 0x8fffffffu) | 0x30000000u));
      break;
    case 9:
      out[0] = ops::bits_of(ops::unpack_lo<DType::bf16>(in[0]));
      out[1] = ops::bits_of(ops::unpack_hi<DType::bf16>(in[0]));
      out[2] = ops::bits_of(ops::unpack_lo<DType::f16>(in[1]));
      out[3] = ops::bits_of(ops::unpack_hi<DType::f16>(in[1]));
      break;
    case 10:
      out[0] = ops::broadcast_lo(in[0]);
      out[1] = ops::broadcast_hi(in[0]);
      break;
    case 11:
      out[0] = ops::bits_of(ops::exp2_fast(ordinary(in[0]) * 60.0f));
      out[1] = ops::bits_of(ops::reciprocal_fast(ops::float_of(in[1])));
      out[2] = ops::bits_of(ops::exp2_fast(ops::float_of(in[2])));
      break;
    case 12:
      out[0] = ops::bits_of(ops::tanh_precise(ordinary(in[0]) * 3.0f));
      out[1] = ops::bits_of(ops::erf_precise(ordinary(in[1]) * 2.0f));
      break;
    case 13: {
      i32* sum = reinterpret_cast<i32*>(ops::shared_memory());
      if (thread == 0) *sum = 0;
      u32* words = args.out + 128 * kWords;  // four words behind the threads' own: max, min, or, sum
      ops::barrier();
      ops::atomic_add_shared(sum, static_cast<i32>(in[0] & 0xffffu));
      ops::atomic_max(&words[0], in[1] & 0x7fffffffu);
      ops::atomic_min(&words[1], in[2]);
      ops::atomic_or(&words[2], in[3] & in[4] & in[5]);
      ops::atomic_add(reinterpret_cast<i32*>(&words[3]), static_cast<i32>(in[6] & 0xffffu));
      ops::barrier();
      out[0] = static_cast<u32>(*sum);
      break;
    }
    case 14:
      ops::store_shared_x4(ops::shared_address(words_in_shared(thread)), first_words(in));
      ops::warp_sync();
      keep(out, ops::load_shared_x4(words_in_shared(thread ^ 7)));
      keep(out + 4, ops::load_stream_u32x4(in + 4));
      out[8] = ops::load_stream_u32x2(in + 8).v[1];
      out[9] = ops::load_stream_u32(in + 9);
      out[10] = ops::load_stream_u16(reinterpret_cast<const u16*>(in + 10) + 1);
      break;
#if defined(W4MOE_CONFORMANCE_SM90)
    case 15:
      init_barrier(1);
      if (thread == 0) {
        ops::async_barrier_expect(barrier_word(0), 2048);
        ops::copy_bulk(ops::shared_memory(), args.in, 2048, barrier_word(0));
      }
      ops::async_barrier_wait(barrier_word(0), 0);
      keep(out, ops::load_shared_x4(words_in_shared(127 - thread)));
      ops::barrier();
      break;
    case 16:
      init_barrier(128);
      ops::copy16_async(ops::shared_address(words_in_shared(thread)), in, 16);
      ops::copy_arrive(barrier_word(0));
      ops::async_barrier_wait(barrier_word(0), 0);
      keep(out, ops::load_shared_x4(words_in_shared(127 - thread)));
      ops::copy_commit();
      ops::copy_wait<0>();
      break;
    case 17:
      ops::store_matrix_x4_transposed(ops::shared_address(words_in_shared(thread)), in[0], in[1], in[2], in[3]);
      if (ops::warp_index() < 2) ops::barrier_of<1, 64>(); else ops::barrier_of<2, 64>();
      keep(out, ops::load_shared_x4(words_in_shared(thread ^ 63)));
      break;
    case 18: wgmma<DType::bf16, 8>(in, out); break;
    case 19: wgmma<DType::bf16, 48>(in, out); break;
    case 20: wgmma<DType::bf16, 64>(in, out); break;
#endif
    default: break;
  }
}

}  // namespace w4moe

W4MOE_KERNEL(128, 1) w4moe_conformance(W4MOE_ARGS(w4moe::ConformanceArgs) args) {
  const w4moe::i32 thread = w4moe::ops::thread_index();
  w4moe::run_case(args.which, args.in + thread * w4moe::kWords, args.out + thread * w4moe::kWords, args);
}
