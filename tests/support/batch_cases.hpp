// Batch invariance, on any machine: the bits of a token in batches of several sizes, at several places, among random neighbours.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/layers.hpp"
#include "tests/support/machine.hpp"

namespace w4moe::test {

/// A layer that a machine runs in reasonable time, with an average that takes a batch of `most` tokens through several block widths.
inline Problem batch_problem(const Machine& machine, const QuantFormat& format, DType dtype, i64 most) {
  Problem p = machine.is_large() ? small_problem(2048, 768, 32, format) : small_problem(256, 128, 8, format);
  p.shape.topk = machine.is_large() ? 4 : 2;
  p.shape.max_tokens = most;
  p.dtype = dtype;
  return p;
}

/// Tokens of a pool, in the order of `picks`.
inline SyntheticInputs pick_tokens(const Problem& p, const SyntheticInputs& pool, const std::vector<i64>& picks) {
  SyntheticInputs in;
  const auto append = [](auto& to, const auto& from, i64 row, i64 width) { to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width); };
  for (const i64 token : picks) {
    append(in.x, pool.x, token, p.shape.hidden);
    append(in.ids, pool.ids, token, p.shape.topk);
    append(in.weights, pool.weights, token, p.shape.topk);
  }
  in.inputs = pool.inputs;
  in.inputs.tokens = static_cast<i64>(picks.size());
  in.inputs.x = in.x.data();
  in.inputs.ids = in.ids.data();
  in.inputs.router_weights = in.weights.data();
  return in;
}

/// The first tokens of a pool have the same output bits in every batch. Returns the kernels that ran, FC1 and FC2 of each batch.
inline std::string check_batch_invariance(Machine& machine, const Problem& p, const std::vector<std::string>& pins, const std::vector<i64>& batches) {
  constexpr i64 kProbes = 3;
  const SyntheticLayer source = make_layer(p);
  MachineLayer layer(machine, p, source.source, PlanOptions{pins, 0});
  const SyntheticInputs pool = make_inputs(p, p.shape.max_tokens);
  std::map<i64, std::vector<u16>> bits;
  std::mt19937 random(1);
  std::string kernels;
  for (const i64 batch : batches) {
    const Bucket& bucket = layer.plan().bucket_for(batch);
    kernels += layer.plan().kernels[static_cast<std::size_t>(bucket.fc1)].name + " " + layer.plan().kernels[static_cast<std::size_t>(bucket.fc2)].name + " ";
    for (const bool crowded : {false, true}) {
      std::vector<i64> picks;
      for (i64 i = 0; i < batch; ++i) picks.push_back(i < kProbes ? (i + batch) % kProbes : kProbes + static_cast<i64>(random() % static_cast<u32>(p.shape.max_tokens - kProbes)));
      std::shuffle(picks.begin(), picks.end(), random);
      SyntheticInputs in = pick_tokens(p, pool, picks);
      if (crowded) {  // all neighbours go to the experts of the first probe
        for (i64 row = 0; row < batch; ++row) {
          if (picks[static_cast<std::size_t>(row)] >= kProbes) std::copy_n(pool.ids.begin(), p.shape.topk, in.ids.begin() + row * p.shape.topk);
        }
      }
      const std::vector<u16> out = batch <= 33 && !crowded ? layer.run_right(in.inputs) : layer.run(in.inputs);
      for (i64 row = 0; row < batch; ++row) {
        const i64 token = picks[static_cast<std::size_t>(row)];
        if (token >= kProbes) continue;
        const std::vector<u16> now(out.begin() + row * p.shape.hidden, out.begin() + (row + 1) * p.shape.hidden);
        const auto [seen, is_first] = bits.emplace(token, now);
        INFO("token " << token << " in row " << row << " of " << batch << (crowded ? ", crowded" : "") << ", " << kernels);
        CHECK((is_first || seen->second == now));
      }
    }
  }
  return kernels;
}

}  // namespace w4moe::test
