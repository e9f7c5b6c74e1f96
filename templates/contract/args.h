// Kernel arguments: one struct per kernel, shared by host and device; the cubin exports its size.
#pragma once

#include "contract/variant.h"

namespace w4moe {

/// Raised with every change of a struct below.
inline constexpr u32 kArgsVersion = 3;

struct RouteArgs {
  const void* ids = nullptr;      ///< device, [tokens][topk], row stride in elements below
  i64 ids_row_stride_elems = 0;
  i64 tokens = 0;
  i32 topk = 0;
  i32 experts = 0;
  i64 max_blocks = 0;             ///< entries of `blocks` that this launch's GEMMs look at; those past the last block get 0 rows
  i32 block_rows = 0;
  IdType id_type = IdType::i32;
  ControlRegion* control = nullptr;
  RouteCounts* counts = nullptr;
  i32* sorted_pairs = nullptr;    ///< [valid pairs] pair = token * topk + j, grouped by expert; the order inside an expert is free
  RouteBlock* blocks = nullptr;
  i32* chunk_counts = nullptr;    ///< [chunks][experts], parallel routing only
  u32* h_amax = nullptr;          ///< cleared for every pair; null unless activations are fp16
};

/// Few routes: no routing kernel runs, the CTAs find their blocks in the ids. Item i of the grid is the block that pair i begins,
/// if it begins one; h is kept by pair.
struct DirectRoutes {
  const void* ids = nullptr;      ///< null: blocks come from the routing kernel
  i64 ids_row_stride_elems = 0;
  i32 tokens = 0;                 ///< tokens * topk is at most the threads of the kernel
  IdType id_type = IdType::i32;
  i32 experts = 0;
};

struct Fc1Args {
  const void* x = nullptr;        ///< device, [tokens][H] bf16 or fp16
  i64 x_row_stride_elems = 0;
  const u8* weights = nullptr;    ///< FC1 units of expert 0
  const ExpertGlobals* globals = nullptr;
  const float* bias = nullptr;    ///< [E][packed rows] or null
  const void* router_weights = nullptr;  ///< read only where weight_on_input
  i64 router_row_stride_elems = 0;
  const RouteCounts* counts = nullptr;
  const i32* sorted_pairs = nullptr;
  const RouteBlock* blocks = nullptr;
  void* h = nullptr;
  u32* h_amax = nullptr;
  DirectRoutes direct{};
  ActivationParams activation{};
  i32 topk = 0;
  DType router_dtype = DType::f32;
  u8 weight_on_input = 0;
};

struct Fc2Args {
  const void* h = nullptr;
  const u32* h_amax = nullptr;
  const u8* weights = nullptr;    ///< FC2 units of expert 0
  const ExpertGlobals* globals = nullptr;
  const float* bias = nullptr;    ///< [E][padded H] or null
  const void* router_weights = nullptr;
  i64 router_row_stride_elems = 0;
  const RouteCounts* counts = nullptr;
  const i32* sorted_pairs = nullptr;
  const RouteBlock* blocks = nullptr;
  void* route_rows = nullptr;     ///< [pairs][H]
  DirectRoutes direct{};
  i32 topk = 0;
  DType router_dtype = DType::f32;
  u8 weight_on_input = 0;         ///< 1: the router weight was applied in FC1
};

/// FC2 of a single token: all its experts in one K loop, the output without route rows.
struct Fc2DirectArgs {
  const void* h = nullptr;        ///< [topk][H stride] rows in route order
  const u8* weights = nullptr;    ///< FC2 units of expert 0
  const ExpertGlobals* globals = nullptr;
  const float* bias = nullptr;    ///< [E][padded H] or null
  const void* router_weights = nullptr;  ///< [topk]
  void* out = nullptr;            ///< [H]
  DirectRoutes direct{};
  const ControlRegion* control = nullptr;
  i32 topk = 0;
  DType router_dtype = DType::f32;
  u8 weight_on_input = 0;
};

struct CombineArgs {
  const void* route_rows = nullptr;
  const void* ids = nullptr;
  i64 ids_row_stride_elems = 0;
  void* out = nullptr;            ///< [tokens][H], dtype of the activations
  i64 out_row_stride_elems = 0;
  i64 tokens = 0;
  i64 hidden = 0;
  i32 topk = 0;
  i32 experts = 0;
  IdType id_type = IdType::i32;
  const ControlRegion* control = nullptr;
};

}  // namespace w4moe
