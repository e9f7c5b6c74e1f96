#include "tests/lockstep/faults.hpp"

namespace w4moe::lockstep {
namespace {

constexpr const char* kFillBarrier = "        table[r] = row_of(a, a.sorted_pairs[found.block.first_slot + r]);\n      }\n    }\n    ops::barrier();";

constexpr Fault kFaults[] = {
    // Missing barriers.
    {"missing barrier: the stage of the portable main loop", FaultCase::portable, "device/mainloop.h", "ops::barrier();  // the stage has landed", "// "},
    {"missing barrier: partial sums of FC1", FaultCase::portable, "kernels/fc1.cuh", "store_partials<V>(acc, shared);\n    ops::barrier();",
     "store_partials<V>(acc, shared);"},
    {"missing barrier: partial sums of FC2", FaultCase::portable, "kernels/fc2.cuh", "store_partials<V>(acc, shared);\n    ops::barrier();",
     "store_partials<V>(acc, shared);"},
    {"missing barrier: the row table of FC1", FaultCase::portable, "kernels/fc1.cuh", kFillBarrier, "        table[r] = row_of(a, a.sorted_pairs[found.block.first_slot + r]);\n      }\n    }", false, true},
    {"missing barrier: a stage is freed by one lane for all", FaultCase::wgmma_ring, "device/wgmma_consumer.h",
     "    ops::warp_sync();\n    if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.empty(at));",
     "    if (ops::lane_index() == 0) ops::async_barrier_arrive(shared.empty(at));"},
    {"missing barrier: a CTA that finds its block", FaultCase::self_routed, "device/block_rows.h",
     "if (ops::lane_index() == 0) words[ops::warp_index()] = mine;\n  ops::barrier();", "if (ops::lane_index() == 0) words[ops::warp_index()] = mine;", false, true},
    {"off by one: pairs before a block that a CTA finds", FaultCase::self_routed, "device/block_rows.h",
     "before_first += ops::count_bits(bits & lanes_below(lanes_first));", "before_first += ops::count_bits(bits & lanes_below(lanes_first + 1));"},
    {"missing barrier: counts of the routing kernel", FaultCase::portable, "kernels/route.cuh",
     "for (i32 e = thread; e < a.experts; e += kThreads) counts[e] = 0;\n    ops::barrier();",
     "for (i32 e = thread; e < a.experts; e += kThreads) counts[e] = 0;", false, true},
    {"missing barrier: the row of direct FC2", FaultCase::direct, "kernels/fc2_direct.cuh", "        ops::warp_sync();\n        float sum_low", "        float sum_low"},
    {"missing barrier: partial sums of direct FC2", FaultCase::direct, "kernels/fc2_direct.cuh", "    ops::barrier();\n    store_outputs",
     "    store_outputs"},
    // Reads before the wait.
    {"read before wait: the row of direct FC2", FaultCase::direct, "device/direct.h", "  ops::copy_wait<0>();\n  if constexpr", "  if constexpr"},
    {"read before wait: a stage of wgmma", FaultCase::wgmma, "device/wgmma_consumer.h",
     "ops::async_barrier_wait(shared.full(stage.index), stage.parity);", ""},
    {"read before wait: tokens without the fence that wgmma needs", FaultCase::wgmma, "device/wgmma_consumer.h",
     "ops::fence_async_shared();  // the tokens", "// "},
    {"read before wait: operands of a wgmma that still runs", FaultCase::wgmma, "device/wgmma_consumer.h", "ops::wgmma_wait<1>();  // the group before",
     "ops::wgmma_wait<2>();  // the group before"},
    {"wrong parity: the producer of wgmma", FaultCase::wgmma, "device/wgmma_producer.h",
     "ops::async_barrier_wait(shared.empty(stage.index), stage.parity ^ 1);", "ops::async_barrier_wait(shared.empty(stage.index), stage.parity);"},
    {"wrong parity: the consumers of wgmma", FaultCase::wgmma, "device/wgmma_consumer.h",
     "ops::async_barrier_wait(shared.full(stage.index), stage.parity);", "ops::async_barrier_wait(shared.full(stage.index), stage.parity ^ 1);"},
    {"read before wait: one stage too few in the portable main loop", FaultCase::portable, "device/mainloop.h", "copy_wait<kTile.stages - 2>",
     "copy_wait<kTile.stages - 1>"},
    {"read before wait: combine begins before FC2 has ended", FaultCase::overlap, "kernels/combine.cuh", "    ops::grid_wait();\n", ""},
    {"read before wait: FC2 begins before FC1 has ended", FaultCase::overlap, "kernels/fc2.cuh", "if constexpr (!kScaledRows) ops::grid_wait();", ""},
    {"read before wait: FC1 lets FC2 begin before routing is complete", FaultCase::overlap, "kernels/fc1.cuh",
     "    ops::grid_wait();\n    ops::grid_launch_next();\n", "    ops::grid_launch_next();\n    ops::grid_wait();\n"},
    // Strides and swizzles.
    {"expert stride drift: FC1", FaultCase::portable, "kernels/fc1.cuh", "block.expert * kMatrix.expert_stride_bytes()",
     "block.expert * (kMatrix.expert_stride_bytes() - 16)"},
    {"expert stride drift: FC2", FaultCase::portable, "kernels/fc2.cuh", "block.expert * kMatrix.expert_stride_bytes()",
     "block.expert * (kMatrix.expert_stride_bytes() - 16)"},
    {"expert stride drift: direct FC2", FaultCase::direct, "kernels/fc2_direct.cuh",
     "share = share_of(a, route, part, parts);\n    stream.start(a.weights + (", "share = share_of(a, route, part, parts);\n    stream.start(a.weights + share.expert * 16 + ("},
    {"expert stride drift: wgmma", FaultCase::wgmma, "device/wgmma_producer.h", "item.block.expert * kMatrix.expert_stride_bytes()",
     "item.block.expert * (kMatrix.expert_stride_bytes() - 16)"},
    {"wrong swizzle: the portable stages", FaultCase::portable, "device/token_stage.h",
     "read[1] = ring + vector_offset_bytes(lane % 8, warp_unit + 4 + lane / 8);", "read[1] = ring + vector_offset_bytes(lane % 8, warp_unit + 4) + lane / 8 * 16;"},
    {"wrong swizzle: the tokens of wgmma", FaultCase::wgmma, "contract/wgmma_tile.h", "((vector ^ row) & 7) * 16", "(vector & 7) * 16"},
    // The six defects of the system that this project re-creates (its repair of narrow layers), in our kernels.
    {"seed 1: lanes of h past I are read", FaultCase::portable, "device/token_stage.h", "kTail.valid_vector_bytes(first + c * kThreads * 8, 2) == 16", "true"},
    {"seed 1: lanes of h past I are read, direct", FaultCase::direct, "device/direct.h",
     "from == nullptr ? 0 : kTail.valid_vector_bytes(i * kRowVectorElems, 2)", "from == nullptr ? 0 : 16", true},
    {"seed 1: lanes of h past I are read, wgmma", FaultCase::wgmma, "device/wgmma_producer.h", "kTailStep = kMatrix.k % kTile.stage_k() != 0;",
     "kTailStep = false;"},
    {"seed 2: the padded length bounds weight loads, direct", FaultCase::direct, "device/direct.h", "if (j < count) load(j, j);",
     "if (j <= count) load(j, j);", true},
    {"seed 2: the padded length bounds weight loads, wgmma", FaultCase::wgmma, "device/wgmma_producer.h",
     "const i32 units = kUnits - first < kStageUnits ? kUnits - first : kStageUnits;", "const i32 units = kStageUnits;", true},
    {"seed 2: the padded length bounds weight loads", FaultCase::deep, "device/weight_stream.h",
     "if (kRagged && next_unit + j >= kUnits) return;", "if (kRagged && next_unit + j > kUnits) return;", true},
    {"seed 3: tiles do not partition the rows", FaultCase::many_groups, "contract/variant.h", "ceil_div(matrix().strips(), tile_strips())",
     "matrix().strips() / tile_strips()", true},
    {"seed 4: the short last group is taken for a whole one", FaultCase::many_groups, "device/weight_stream.h", "kMatrix.groups_are_whole();", "true;"},
    {"seed 5: K is taken for whole stages", FaultCase::deep, "device/weight_stream.h", "kRagged = kUnits % kStageUnits != 0;", "kRagged = false;", true},
    {"seed 6: a stride without its padding, in every read", FaultCase::many_groups, "contract/weight_layout.h",
     "return strips() * k_units() * unit().unit_bytes();", "return rows * k_units() * unit().unit_bytes() / kStripRows - unit().unit_bytes();"},
    // Scratch and results of before.
    {"stale scratch: amax of fp16 rows", FaultCase::half, "kernels/route.cuh", "if (a.h_amax != nullptr) a.h_amax[p] = 0;", ""},
    {"stale scratch: blocks past the last", FaultCase::portable, "device/route_blocks.h",
     "for (i64 b = total_blocks + writer * Threads + thread; b < a.max_blocks; b += writers * Threads) a.blocks[b] = RouteBlock{};", "", true},
    {"stale scratch: rows of foreign ids are summed", FaultCase::portable, "kernels/combine.cuh",
     "expert_of_pair(a.ids, a.id_type, a.ids_row_stride_elems, token, first + j, a.experts) >= 0;", "true;"},
    // Off by one.
    {"off by one: columns past H are stored, wgmma", FaultCase::wgmma, "kernels/fc2_wgmma.cuh", "static_cast<i32>(kTail.valid_rows(column, kWarpRows)) * 2",
     "static_cast<i32>(kWarpRows) * 2", true},
    {"off by one: a row past the block is stored", FaultCase::portable, "kernels/fc2.cuh", "if (row >= block.rows || column >= V.hidden) return;",
     "if (row > block.rows || column >= V.hidden) return;"},
};

}  // namespace

std::span<const Fault> all_faults() { return kFaults; }

LayerCase case_for(FaultCase where) {
  LayerCase c = case_of_many_stages();
  c.strange_ids = true;
  c.fillings = {0xff, 0x5b};  // NaNs, and numbers as of a run before
  switch (where) {
    case FaultCase::portable: break;
    case FaultCase::deep: c.tile = GemmTile{8, 2, 1, 1, 2, 3, 1}; break;  // FC2's three units: a stage and a half
    case FaultCase::many_groups:
      c.problem = test::small_problem(272, 176, 4, kNvfp4);  // 17 strips of FC2 and 22 of FC1, in groups of eight
      break;
    case FaultCase::direct:
      c = LayerCase{};
      c.problem = test::small_problem(256, 160, 4);
      c.tokens = 1;
      c.ids = {3, 1};
      c.fillings = {0xff, 0x5b};
      break;
    case FaultCase::self_routed:
      c = LayerCase{};
      c.problem = test::small_problem(256, 160, 64);
      c.problem.shape.topk = 8;
      c.tokens = 4;
      c.pins = {"portable"};
      for (i64 p = 0; p < 32; ++p) c.ids.push_back(p * 5 % 7);
      break;
    case FaultCase::wgmma_ring:
      c.problem = test::small_problem(512, 256, 8);
      c.tile.reset();
      c.pins = {"w16"};
      break;
    case FaultCase::half: c.problem.dtype = DType::f16; break;
    case FaultCase::overlap:
      c.problem = test::small_problem(256, 32, 4);
      c.device.resident_ctas = 1000;
      c.fillings = {0x00};  // blocks and ids that are read too early name no place far away
      break;
    case FaultCase::wgmma:
      c.problem = test::small_problem(272, 176, 4, kNvfp4);
      c.tile.reset();
      c.pins = {"w24"};
      c.tokens = 24;
      break;
  }
  return c;
}

LayerCase case_with(const Fault& fault) {
  LayerCase c = case_for(fault.where);
  c.headers = planted(fault.file, fault.from, fault.to);
  c.device.random = fault.random;
  c.device.seed = 5;
  return c;
}

}  // namespace w4moe::lockstep
