// User reports on a real GPU, at the shapes that they were made for.
#include <cstdio>
#include <random>

#include "tests/gpu/gpu_machine.hpp"
#include "tests/support/report_numbers.hpp"

using namespace w4moe;
using namespace w4moe::test;

TEST_CASE("N01: gate and up stay apart, MXFP4") {
  W4MOE_GPU_MACHINE(machine);
  check_gate_and_up_apart(machine, kMxfp4);
}
TEST_CASE("N01: gate and up stay apart, NVFP4") {
  W4MOE_GPU_MACHINE(machine);
  check_gate_and_up_apart(machine, kNvfp4);
}
TEST_CASE("N02: every expert is as right as the first, MXFP4") {
  W4MOE_GPU_MACHINE(machine);
  check_each_expert(machine, kMxfp4);
}
TEST_CASE("N02: every expert is as right as the first, NVFP4") {
  W4MOE_GPU_MACHINE(machine);
  check_each_expert(machine, kNvfp4);
}
TEST_CASE("N03: 80 features a rank, 512 experts") {
  W4MOE_GPU_MACHINE(machine);
  check_shard(machine, Shape{4096, 80, 512, 10, 33}, kNvfp4, Activation::silu, {1, 33});
}
TEST_CASE("N04: shards that no tile divides: one verdict at every stage, and right where they are served") {
  W4MOE_GPU_MACHINE(machine);
  for (const Activation activation : {Activation::silu, Activation::relu2}) {
    for (const QuantFormat& format : {kMxfp4, kNvfp4, int4_format(32), int4_format(128)}) {
      for (const i64 intermediate : {928, 464, 232}) {
        check_one_verdict(machine, intermediate, format, activation);
        if (format.divides(intermediate)) check_shard(machine, Shape{1024, intermediate, 8, 2, 33}, format, activation, {1, 33});
      }
    }
  }
}
TEST_CASE("N06: the output is 2880 wide, between rows of 3072 and at its end") {
  W4MOE_GPU_MACHINE(machine);
  check_output_width(machine);
}
TEST_CASE("N08: three fillings of the scratch give the same bits, 256 experts") {
  W4MOE_GPU_MACHINE(machine);
  check_scratch_fillings(machine);
}
TEST_CASE("S16: a token too many is refused and writes nothing; the most uneven routing fits the scratch") {
  W4MOE_GPU_MACHINE(machine);
  check_capacity(machine);
}
TEST_CASE("N16, N17: every flavour of the gated activation, in every order of rows, equals its own reference and no other") {
  W4MOE_GPU_MACHINE(machine);
  check_activation_matrix(machine);
}
TEST_CASE("N18: the output bias of a tensor-parallel group counts once") {
  W4MOE_GPU_MACHINE(machine);
  check_output_bias_owner(machine);
}
TEST_CASE("N19: a NaN scale gives NaN in the outputs that use it and nowhere else") {
  W4MOE_GPU_MACHINE(machine);
  check_nan_scales(machine);
}
TEST_CASE("N19: all scale bytes through the whole kernel, wide") {
  W4MOE_GPU_MACHINE(machine);
  check_all_scale_bytes(machine, kMxfp4Wide);
}
TEST_CASE("N19: all scale bytes through the whole kernel, in windows") {
  W4MOE_GPU_MACHINE(machine);
  check_all_scale_bytes(machine, kMxfp4);
}
TEST_CASE("N24: gate and up globals that differ tenfold") {
  W4MOE_GPU_MACHINE(machine);
  check_globals(machine);
}
TEST_CASE("N25: scales are stepped at the group's own distance: 32, 64, 128, whole rows") {
  W4MOE_GPU_MACHINE(machine);
  for (const i64 group : {i64{32}, i64{64}, i64{128}, kWholeRow}) check_group_steps(machine, group);
}
TEST_CASE("N26: zero points 0..15 in every declared order") {
  W4MOE_GPU_MACHINE(machine);
  check_zero_points(machine);
}

// What compute-sanitizer's tools run: every kernel that plans of these layers hold, each at the first token count that reaches it.
TEST_CASE("S18, T3: every bucket of tiny layers in every format, gated and ungated, bf16 and fp16", "[sanitize]") {
  W4MOE_NEED_GPU(gpu);
  GpuMachine machine(gpu, false);
  struct Case {
    QuantFormat format;
    Activation activation;
    DType dtype;
    i64 experts;
  };
  const Case cases[] = {
      {kMxfp4, Activation::swiglu_oai, DType::bf16, 4},
      {kMxfp4, Activation::relu2, DType::f16, 4},
      {kMxfp4Wide, Activation::silu, DType::bf16, 4},
      {kNvfp4, Activation::silu, DType::bf16, 4},
      {kNvfp4, Activation::relu2, DType::f16, 4},
      {int4_format(32, true), Activation::silu, DType::bf16, 4},
      {int4_format(32, false, ScaleType::f16), Activation::relu2, DType::bf16, 4},
      {int4_format(kWholeRow), Activation::silu, DType::f16, 4},
      {kMxfp4, Activation::silu, DType::bf16, 256},
      {kMxfp4, Activation::silu, DType::bf16, 512},
  };
  for (const Case& c : cases) {
    Problem problem = report_problem(Shape{160, c.format.divides(80) ? 80 : 96, c.experts, 2, c.experts > 4 ? i64{40} : i64{1024}}, c.format, c.activation);
    problem.dtype = c.dtype;
    problem.has_bias = c.activation == Activation::swiglu_oai;
    SyntheticLayer source = make_layer(problem);
    MachineLayer layer(machine, problem, source.source);
    for (const Bucket& bucket : layer.plan().buckets) layer.run_right(make_inputs(problem, bucket.first_tokens).inputs);
  }
}

TEST_CASE("N12, R1: no tokens, no valid id", "[sanitize]") {
  W4MOE_NEED_GPU(gpu);
  GpuMachine machine(gpu, false);
  check_no_tokens(machine);
  check_ids(machine);
}

// Two streams, each with scratch of its own, replay graphs of twenty runs in a mixed order: 10^5 runs of a layer in all. Each replay
// must leave the bits that the same run left when it was alone.
TEST_CASE("S18: 10^5 runs on two streams with mixed token counts leave the same bits as one") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  const DeviceLayer layer(*gpu.table, engine, gpu_problem());
  const driver::DeviceBuffer second_scratch = gpu_must(driver::DeviceBuffer::allocate(*gpu.table, layer.plan.required_bytes()));
  const Binding second = layer.bind(second_scratch);
  gpu_must(engine.init_scratch(second, nullptr));
  gpu_must(driver::check(*gpu.table, gpu.table->ctx_synchronize(), "cuCtxSynchronize"));
  const Binding* const bindings[] = {&*layer.binding, &second};
  const i64 counts[] = {1, 2, 5, 13, 33, 64};
  constexpr int kRunsPerGraph = 20;
  constexpr int kRuns = 100000;
  constexpr int kCheckEvery = 250;

  struct Lane {
    driver::OwnedStream stream;
    std::vector<DeviceInputs> inputs;
    std::vector<driver::OwnedGraph> graphs;
  };
  std::vector<Lane> lanes;
  std::vector<std::vector<u16>> expected;
  for (int i = 0; i < 2; ++i) {
    Lane lane{gpu_must(driver::OwnedStream::create(*gpu.table)), {}, {}};
    for (const i64 m : counts) {
      lane.inputs.emplace_back(*gpu.table, layer.plan.problem, m);
      const DeviceInputs& in = lane.inputs.back();
      if (i == 0) expected.push_back(layer.run(in));
      lane.graphs.push_back(gpu_must(driver::OwnedGraph::capture(*gpu.table, lane.stream.handle(), [&]() -> Status {
        for (int run = 0; run < kRunsPerGraph; ++run) {
          if (Status s = engine.run(*bindings[i], lane.stream.handle(), in.args); !s) return s;
        }
        return {};
      })));
    }
    lanes.push_back(std::move(lane));
  }
  std::mt19937 random(3);
  for (int launched = 0, round = 0; launched < kRuns; launched += 2 * kRunsPerGraph, ++round) {
    for (const Lane& lane : lanes) gpu_must(lane.graphs[random() % std::size(counts)].launch(lane.stream.handle()));
    if (round % kCheckEvery != kCheckEvery - 1) continue;
    for (const Lane& lane : lanes) {
      gpu_must(lane.stream.synchronize());
      for (std::size_t c = 0; c < std::size(counts); ++c) {
        gpu_must(lane.inputs[c].out.fill(0xff));
        gpu_must(lane.graphs[c].launch(lane.stream.handle()));
        gpu_must(lane.stream.synchronize());
        REQUIRE(lane.inputs[c].download() == expected[c]);
      }
    }
  }
  for (const Binding* binding : bindings) CHECK(gpu_must(engine.status(*binding)).ok());
}

// S02: what the query says is what runs touch, up to 8192 tokens.
TEST_CASE("S02: scratch watermark at 1, 32, 3072 and 8192 tokens") {
  W4MOE_NEED_GPU(gpu);
  Engine engine = gpu_must(Engine::create(gpu_engine_options()));
  i64 before = 0;
  for (const i64 capacity : {1, 32, 3072, 8192}) {
    Problem problem = gpu_problem();
    problem.shape.max_tokens = capacity;
    constexpr i64 kBeyond = 1 << 20;
    DeviceLayer layer(*gpu.table, engine, problem, {}, {}, kBeyond);
    const i64 needed = layer.plan.required_bytes();
    CHECK(needed >= before);
    before = needed;
    // All rows to one expert, spread evenly, and none at all: the last byte is touched by the most uneven one or by the widest.
    i64 highest = 0;
    for (const int spread : {0, 1, 2}) {
      DeviceInputs inputs(*gpu.table, problem, capacity);
      if (spread > 0) {
        const std::vector<i32> ids(inputs.host.ids.size(), spread == 1 ? 7 : -1);
        gpu_must(inputs.ids.upload(ids.data(), inputs.ids.bytes()));
      }
      // A byte that keeps two different fillings was not written.
      std::vector<u8> touched(static_cast<std::size_t>(layer.scratch.bytes() - kControlBytes), 0);
      for (const u8 filling : {u8{0xa5}, u8{0x5a}}) {
        std::vector<u8> bytes(touched.size(), filling);
        gpu_must(layer.scratch.upload(bytes.data(), static_cast<i64>(bytes.size()), kControlBytes));
        layer.run(inputs);
        gpu_must(layer.scratch.download(bytes.data(), static_cast<i64>(bytes.size()), kControlBytes));
        for (std::size_t i = 0; i < bytes.size(); ++i) touched[i] |= bytes[i] != filling;
      }
      for (i64 i = static_cast<i64>(touched.size()) - 1; i >= 0; --i) {
        if (touched[static_cast<std::size_t>(i)] == 0) continue;
        highest = std::max(highest, kControlBytes + i + 1);
        break;
      }
    }
    std::printf("max_tokens %lld: asked for %lld bytes, highest byte touched %lld\n", static_cast<long long>(capacity), static_cast<long long>(needed),
                static_cast<long long>(highest));
    CHECK(highest <= needed);
    CHECK(static_cast<double>(needed) <= 1.10 * static_cast<double>(std::max(highest, kControlBytes)));
  }
}
