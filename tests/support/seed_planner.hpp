// An independent model of the planner whose scratch this project set out to beat: a fused W4A16 MoE that sized its arena for every
// block width it could ever pick (about 95 MiB for its documented case), and after its fix for the reachable ones (about 30 MiB).
// It shares no code with our planner and exists so that a test can put the two side by side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace w4moe::test {

struct SeedCaps {
  std::int64_t max_tokens = 64;
  std::int64_t topk = 8;
  std::int64_t experts = 160;
  std::int64_t hidden = 6144;
  std::int64_t intermediate = 512;
  std::int64_t sms = 188;
  bool gated = true;
};

/// Rows per route block that it can pick for m tokens: the first width that m * topk / experts fills to less than nine tenths.
inline std::int64_t seed_block(const SeedCaps& c, std::int64_t tokens) {
  for (const std::int64_t block : {8, 16, 32, 48, 64}) {
    if (10 * tokens * c.topk < 9 * block * c.experts) return block;
  }
  return 64;
}

inline std::vector<std::int64_t> seed_all_blocks() { return {8, 16, 32, 48, 64}; }

/// The ladder from the width of one token to that of max_tokens.
inline std::vector<std::int64_t> seed_reachable_blocks(const SeedCaps& c) {
  std::vector<std::int64_t> blocks;
  for (const std::int64_t block : seed_all_blocks()) {
    if (block >= seed_block(c, 1) && block <= seed_block(c, c.max_tokens)) blocks.push_back(block);
  }
  return blocks;
}

/// Bytes of its one arena, for a layer in its native weight layout with more than eight tokens planned.
inline std::int64_t seed_arena_bytes(const SeedCaps& c, const std::vector<std::int64_t>& blocks) {
  const auto up16 = [](std::int64_t n) { return (n + 15) / 16 * 16; };
  std::int64_t planned = 1;  // token counts are planned in powers of two
  while (planned < c.max_tokens) planned *= 2;
  const std::int64_t rows = planned * c.topk;
  const std::int64_t fc1_columns = c.gated ? 2 * c.intermediate : c.intermediate;

  std::int64_t fc1_partials = 1, fc2_partials = 1, slots_max = 0, blocks_max = 0;
  for (const std::int64_t block : blocks) {
    std::int64_t slots = rows + c.experts * (block - 1);
    if (rows < c.experts) slots = std::min(slots, rows * block);
    const std::int64_t doubled = block == 8 ? 2 : 1;  // an 8-row block still uses 16-row slots
    const std::int64_t cap = c.sms * 4 * block * 256;
    fc1_partials = std::max(fc1_partials, doubled * std::min(fc1_columns * slots, cap));
    fc2_partials = std::max(fc2_partials, doubled * std::min(c.hidden * slots, cap));
    slots_max = std::max(slots_max, slots);
    blocks_max = std::max(blocks_max, (slots + block - 1) / block);
  }

  std::int64_t router = 0;
  for (const std::int64_t bytes : {c.max_tokens * c.experts * 2, c.max_tokens * c.topk * 4, c.max_tokens * c.topk * 4,
                                   c.max_tokens * c.topk * 4}) {
    router = up16(router) + bytes;
  }
  std::int64_t core = 0;
  for (const std::int64_t bytes : {rows * std::max(fc1_columns, c.hidden) * 2, rows * c.intermediate * 2, fc1_partials * 4,
                                   fc2_partials * 4, slots_max * 4, blocks_max * 4, std::int64_t{4}, (c.experts + 1) * 4}) {
    core = up16(core) + bytes;
  }
  return up16(router) + core;
}

}  // namespace w4moe::test
