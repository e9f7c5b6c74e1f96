// What one run of a layer reads and writes. Plain data.
#pragma once

#include "contract/types.h"
#include "contract/prelude.h"

namespace w4moe {

/// A CUstream or cudaStream_t as it is; null is the legacy default stream. Every operation goes to this stream and no other.
using StreamHandle = void*;

/// One call: out[t] = sum over j of router_weights[t][j] * expert(ids[t][j])(x[t]), for t < tokens. All pointers are device
/// pointers that the GPU reads and writes in stream order; none is kept after the call, except by a graph that captures it.
struct RunArgs {
  i64 tokens = 0;                        ///< m, 0 <= m <= max_tokens of the plan; 0 launches nothing

  const void* x = nullptr;               ///< [tokens][H], the problem's dtype, 16-byte aligned
  i64 x_row_stride_elems = 0;            ///< a multiple of 8, at least H; 0 stands for H

  const void* ids = nullptr;             ///< [tokens][topk]; any value: those outside 0..E-1 contribute nothing
  IdType id_type = IdType::i32;
  i64 ids_row_stride_elems = 0;          ///< at least top-k; 0 stands for top-k

  const void* router_weights = nullptr;  ///< [tokens][topk]
  DType router_dtype = DType::f32;       ///< f32 or bf16
  i64 router_row_stride_elems = 0;       ///< at least top-k; 0 stands for top-k

  void* out = nullptr;                   ///< [tokens][H], the problem's dtype, 16-byte aligned; may be x itself, with x's stride
  i64 out_row_stride_elems = 0;          ///< a multiple of 8, at least H; 0 stands for H. Columns beyond H are not touched
};

}  // namespace w4moe
