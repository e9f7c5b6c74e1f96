// The run-time tensors of one layer call, in host memory.
#pragma once

#include "contract/types.h"

namespace w4moe {

struct MoeInputs {
  i64 tokens = 0;
  const void* x = nullptr;               ///< [tokens][H], dtype of the problem
  i64 x_row_stride_elems = 0;
  const void* ids = nullptr;             ///< [tokens][k]; values outside 0..E-1 contribute nothing
  IdType id_type = IdType::i32;
  i64 ids_row_stride_elems = 0;
  const void* router_weights = nullptr;  ///< [tokens][k]
  DType router_dtype = DType::f32;       ///< f32 or bf16
  i64 router_row_stride_elems = 0;
};

}  // namespace w4moe
