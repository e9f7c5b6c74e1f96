// Reading untrusted expert ids.
#pragma once

#include "contract/args.h"
#include "device/ops.h"

namespace w4moe {

/// Expert of a pair, or -1 where the id is not one of ours.
W4MOE_INLINE i32 expert_of_pair(const void* ids, IdType type, i64 row_stride_elems, i64 token, i64 j, i32 experts) {
  const i64 at = token * row_stride_elems + j;
  const i64 id = type == IdType::i64 ? static_cast<const i64*>(ids)[at] : static_cast<const i32*>(ids)[at];
  return id >= 0 && id < experts ? static_cast<i32>(id) : -1;
}

/// Block of a direct launch: route `pair` alone, empty where its id is not one of ours.
W4MOE_INLINE RouteBlock direct_block(const DirectRoutes& direct, i64 pair) {
  const i32 expert = expert_of_pair(direct.ids, direct.id_type, 0, 0, pair, direct.experts);
  return RouteBlock{expert < 0 ? 0 : expert, static_cast<i32>(pair), expert < 0 ? 0 : 1, 0};
}

}  // namespace w4moe
