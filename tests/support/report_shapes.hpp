// What user reports tell of shapes, tails, routing and memory, as checks that run on any machine. Each is called by a test case that
// carries its number; docs/testing.md has the table. Small machines get small shapes with the same tails.
#pragma once

#include <climits>
#include <random>

#include "tests/support/layers.hpp"
#include "tests/support/machine.hpp"

namespace w4moe::test {

inline Problem report_problem(const Shape& shape, const QuantFormat& format, Activation activation = Activation::silu) {
  Problem problem = small_problem(shape.hidden, shape.intermediate, shape.experts, format, activation);
  problem.shape = shape;
  problem.name = to_string(format) + " H " + std::to_string(shape.hidden) + " I " + std::to_string(shape.intermediate);
  return problem;
}

/// Few tokens through the routed kernels: small machines compile one pair of GEMM kernels a layer.
inline PlanOptions routed_only(const Machine& machine) {
  PlanOptions options;
  if (!machine.is_large()) options.pins = {"no-direct"};
  return options;
}

/// The shape that most checks of a small machine share, so that few kernels are compiled.
inline Shape small_shape(const QuantFormat& format) { return Shape{160, format.divides(80) ? 80 : 96, 6, 2, 16}; }

inline bool is_zero(u16 bits) { return (bits & 0x7fffu) == 0; }
inline bool is_nan(DType dtype, u16 bits) { return dtype == DType::bf16 ? (bits & 0x7fffu) > 0x7f80u : (bits & 0x7fffu) > 0x7c00u; }

inline std::vector<i64> token_counts(const Machine& machine, std::vector<i64> large, std::vector<i64> small) { return machine.is_large() ? large : small; }

/// N01: nothing of gate reaches up, and nothing of either reaches a neighbour, where I is no multiple of any tile.
inline void check_gate_and_up_apart(Machine& machine, const QuantFormat& format) {
  const Problem problem = report_problem(machine.is_large() ? Shape{2816, 352, 16, 8, 64} : small_shape(format), format);
  const i64 features = problem.shape.intermediate;
  const i64 row_bytes = problem.shape.hidden / 2;
  const SyntheticInputs inputs = make_inputs(problem, machine.is_large() ? 64 : 7);
  SyntheticLayer layer = make_layer(problem);  // gate first
  const std::vector<u16> plain = MachineLayer(machine, problem, layer.source, routed_only(machine)).run_right(inputs.inputs);

  const auto with_rows_zero = [&](i64 first) {
    SyntheticLayer changed = make_layer(problem);
    u8* const codes = bytes_of(changed.source.gate_up.codes);
    for (i64 e = 0; e < problem.shape.experts; ++e) std::fill_n(codes + (2 * e * features + first) * row_bytes, features * row_bytes, u8{0});
    const std::vector<u16> out = MachineLayer(machine, problem, changed.source, routed_only(machine)).run(inputs.inputs);
    return std::all_of(out.begin(), out.end(), is_zero);
  };
  CHECK(with_rows_zero(0));
  CHECK(with_rows_zero(features));

  // Another gate row changes one element of h, and of the output only what that element's weights reach.
  SyntheticLayer changed = make_layer(problem);
  const i64 feature = features - 1;
  for (i64 e = 0; e < problem.shape.experts; ++e) {
    u8* const row = bytes_of(changed.source.gate_up.codes) + (2 * e * features + feature) * row_bytes;
    for (i64 i = 0; i < row_bytes; ++i) row[i] ^= 0x55;
  }
  const std::vector<u16> out = MachineLayer(machine, problem, changed.source, routed_only(machine)).run_right(inputs.inputs);
  const SyntheticNumbers numbers(problem, {});
  i64 reached = 0;
  i64 changed_elems = 0;
  for (i64 t = 0; t < inputs.inputs.tokens; ++t) {
    for (i64 row = 0; row < problem.shape.hidden; ++row) {
      bool is_reached = false;
      for (i64 j = 0; j < problem.shape.topk; ++j) {
        const i32 expert = inputs.ids[static_cast<std::size_t>(t * problem.shape.topk + j)];
        is_reached = is_reached || (numbers.code(expert, Projection::down, row, feature) & 7u) != 0;
      }
      const std::size_t i = static_cast<std::size_t>(t * problem.shape.hidden + row);
      if (!is_reached) REQUIRE(out[i] == plain[i]);
      reached += is_reached;
      changed_elems += out[i] != plain[i];
    }
  }
  CHECK(changed_elems > reached / 4);  // most of the others round to something else
}

/// N02: the strides between experts do not drift. All tokens go to one expert; the error is within the same bound for each.
inline void check_each_expert(Machine& machine, const QuantFormat& format) {
  for (const i64 hidden : machine.is_large() ? std::vector<i64>{2880, 1600} : std::vector<i64>{160}) {
    Shape shape = machine.is_large() ? Shape{hidden, 1440, 32, 1, 16} : small_shape(format);
    shape.topk = 1;
    const Problem problem = report_problem(shape, format);
    SyntheticLayer source = make_layer(problem);
    MachineLayer layer(machine, problem, source.source, routed_only(machine));
    SyntheticInputs inputs = make_inputs(problem, 9);
    for (const i64 expert : {i64{0}, i64{1}, shape.experts / 2 - 1, shape.experts - 1}) {
      std::fill(inputs.ids.begin(), inputs.ids.end(), static_cast<i32>(expert));
      INFO("expert " << expert);
      layer.run_right(inputs.inputs);
    }
  }
}

/// N03, N04: shards that no tile divides are right.
inline void check_shard(Machine& machine, const Shape& shape, const QuantFormat& format, Activation activation, const std::vector<i64>& counts) {
  const Problem problem = report_problem(shape, format, activation);
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  for (const i64 tokens : counts) layer.run_right(make_inputs(problem, tokens).inputs);
}

/// N04: supports(), the byte queries, the plan, the packer and the engine give one verdict on a shard.
inline void check_one_verdict(Machine& machine, i64 intermediate, const QuantFormat& format, Activation activation) {
  Problem problem = report_problem(Shape{256, intermediate, 4, 2, 16}, format, activation);
  problem.compact_tail = false;
  const DeviceSpec device = value_of(machine.engine().device());
  const bool served = format.divides(intermediate);
  INFO(problem.name);
  CHECK(supports(problem, device).ok() == served);
  CHECK(required_bytes(problem, device).ok() == served);
  CHECK(prepared_weight_bytes(problem).ok() == served);
  const auto plan = make_plan(problem, device);
  REQUIRE(plan.ok() == served);
  if (served) return;
  const std::string message = plan.error().message;
  CHECK(message.find(std::to_string(intermediate)) != std::string::npos);
  CHECK(message.find(std::to_string(format.group_size)) != std::string::npos);
}

/// N06: the output is H wide and no wider, whatever lies between and behind its rows.
inline void check_output_width(Machine& machine) {
  Shape shape = small_shape(kMxfp4);
  if (machine.is_large()) shape = Shape{2880, 96, 8, 2, 128};
  const Problem problem = report_problem(shape, kMxfp4);
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  const i64 pitch = machine.is_large() ? 3072 : 256;
  for (const i64 tokens : token_counts(machine, {1, 5, 128}, {2, 5})) {
    const SyntheticInputs inputs = make_inputs(problem, tokens);
    const std::vector<u16> expected = layer.run_right(inputs.inputs);
    constexpr i64 kBehind = 4096;
    const auto out = machine.allocate(tokens * pitch * 2 + kBehind);
    out->fill(0xa5);
    succeeds(layer.run_into(inputs.inputs, out->data(), pitch));
    const std::vector<u8> bytes = out->read();
    for (i64 t = 0; t < tokens; ++t) {
      const u8* const row = bytes.data() + t * pitch * 2;
      REQUIRE(std::equal(row, row + shape.hidden * 2, reinterpret_cast<const u8*>(expected.data() + t * shape.hidden)));
      REQUIRE(std::all_of(row + shape.hidden * 2, row + pitch * 2, [](u8 byte) { return byte == 0xa5; }));
    }
    REQUIRE(std::all_of(bytes.end() - kBehind, bytes.end(), [](u8 byte) { return byte == 0xa5; }));
  }
}

/// N08: what the scratch held before does not show: ones, zeros, random bytes.
inline void check_scratch_fillings(Machine& machine) {
  const Problem problem = report_problem(machine.is_large() ? Shape{512, 256, 256, 8, 33} : small_shape(kMxfp4), kMxfp4);
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  std::mt19937_64 random(11);
  std::vector<u8> payload(static_cast<std::size_t>(layer.payload_bytes()));
  for (i64 tokens = 1; tokens <= (machine.is_large() ? 33 : 3); ++tokens) {
    const SyntheticInputs inputs = make_inputs(problem, tokens);
    std::vector<u16> first;
    for (int filling = 0; filling < 3; ++filling) {
      for (u8& byte : payload) byte = filling == 0 ? u8{0xff} : filling == 1 ? u8{0} : static_cast<u8>(random());
      layer.poison(payload);
      const std::vector<u16> out = layer.run(inputs.inputs);
      if (filling == 0) first = out;
      REQUIRE(out == first);
    }
    REQUIRE(std::none_of(first.begin(), first.end(), [&](u16 bits) { return is_nan(problem.dtype, bits); }));
    if (tokens <= 3) layer.require_right(inputs.inputs, first);
  }
}

/// N09, N11: any id; experts without tokens, with all of them, the last alone; none at all gives zeros where NaNs lay.
inline void check_ids(Machine& machine) {
  const Problem problem = report_problem(machine.is_large() ? Shape{512, 256, 64, 4, 40} : small_shape(kMxfp4), kMxfp4);
  const i32 experts = static_cast<i32>(problem.shape.experts);
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  for (const i64 tokens : token_counts(machine, {1, 5, 40}, {5, 16})) {
    SyntheticInputs inputs = make_inputs(problem, tokens);
    const auto run_with = [&](const auto& id_of) {
      for (std::size_t i = 0; i < inputs.ids.size(); ++i) inputs.ids[i] = id_of(i);
      return layer.run_right(inputs.inputs);
    };
    run_with([](std::size_t) { return 0; });
    run_with([&](std::size_t) { return experts - 1; });
    const i32 odd[] = {-1, experts, INT_MAX, INT_MIN, 3, experts - 1, experts + 1, -7};
    run_with([&](std::size_t i) { return odd[i % 8]; });
    const std::vector<u16> none = run_with([](std::size_t) { return -1; });
    CHECK(std::all_of(none.begin(), none.end(), [](u16 bits) { return bits == 0; }));
  }
}

/// N09: four ranks of a layer, each with the ids of its own experts, add up to the whole.
inline void check_expert_ranks(Machine& machine) {
  const Problem problem = report_problem(machine.is_large() ? Shape{512, 256, 32, 4, 16} : Shape{160, 96, 8, 2, 16}, kMxfp4);
  const i32 per_rank = static_cast<i32>(problem.shape.experts / 4);
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  SyntheticInputs inputs = make_inputs(problem, 16);
  const std::vector<i32> all = inputs.ids;
  const std::vector<u16> whole = layer.run_right(inputs.inputs);
  std::vector<double> sum(whole.size(), 0.0);
  for (i32 rank = 0; rank < 4; ++rank) {
    for (std::size_t i = 0; i < all.size(); ++i) inputs.ids[i] = all[i] / per_rank == rank ? all[i] : -1;
    const std::vector<u16> part = layer.run_right(inputs.inputs);
    for (std::size_t i = 0; i < part.size(); ++i) sum[i] += static_cast<double>(std::bit_cast<float>(static_cast<u32>(part[i]) << 16));
  }
  CHECK(compare_outputs(DType::bf16, whole, sum, problem.shape.hidden).relative_rmse < 6e-3);  // five roundings to bf16 against one
}

/// N12: no tokens: nothing is touched, and the next run is right.
inline void check_no_tokens(Machine& machine) {
  const Problem problem = report_problem(small_shape(kMxfp4), kMxfp4);
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  SyntheticInputs inputs = make_inputs(problem, 4);
  const auto out = machine.allocate(4096);
  out->fill(0x3c);
  MoeInputs none = inputs.inputs;
  none.tokens = 0;
  succeeds(layer.run_into(none, out->data(), 0));
  succeeds(layer.run_into(none, nullptr, 0));
  const std::vector<u8> bytes = out->read();
  CHECK(std::all_of(bytes.begin(), bytes.end(), [](u8 byte) { return byte == 0x3c; }));
  layer.run_right(inputs.inputs);
}

/// N31: counts of experts around the powers of two.
inline void check_expert_counts(Machine& machine, const std::vector<i64>& counts, const std::vector<i64>& tokens) {
  for (const i64 experts : counts) {
    Shape shape = small_shape(kMxfp4);
    if (machine.is_large()) shape = Shape{64, 32, 1, 1, 4096};
    shape.experts = experts;
    shape.topk = std::min<i64>(8, experts);
    shape.max_tokens = std::max(shape.max_tokens, *std::max_element(tokens.begin(), tokens.end()));
    const Problem problem = report_problem(shape, kMxfp4);
    SyntheticLayer source = make_layer(problem);
    MachineLayer layer(machine, problem, source.source, routed_only(machine));
    INFO(experts << " experts");
    for (const i64 m : tokens) layer.run_right(make_inputs(problem, m).inputs);
  }
}

/// S16: one token more than planned is refused with both numbers and writes nothing; the most uneven routing fits.
inline void check_capacity(Machine& machine) {
  const Problem problem = report_problem(machine.is_large() ? Shape{512, 256, 16, 4, 64} : small_shape(kMxfp4), kMxfp4);
  const i64 capacity = problem.shape.max_tokens;
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source, routed_only(machine));
  SyntheticInputs inputs = make_inputs(problem, capacity + 1);
  const auto out = machine.allocate((capacity + 1) * problem.shape.hidden * 2);
  out->fill(0x3c);
  const Status refused = layer.run_into(inputs.inputs, out->data(), 0);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find(std::to_string(capacity)) != std::string::npos);
  CHECK(refused.error().message.find(std::to_string(capacity + 1)) != std::string::npos);
  const std::vector<u8> bytes = out->read();
  CHECK(std::all_of(bytes.begin(), bytes.end(), [](u8 byte) { return byte == 0x3c; }));

  SyntheticInputs full = make_inputs(problem, capacity);
  for (const i32 expert : {0, static_cast<i32>(problem.shape.experts) - 1}) {
    std::fill(full.ids.begin(), full.ids.end(), expert);
    layer.run_right(full.inputs);
  }
}

}  // namespace w4moe::test
