// User reports on the CPU that plays a GPU: the kernel sources themselves, at small shapes with the tails of the reported ones.
#include <cstdlib>
#include <new>

#include "runtime/lockstep/engine.hpp"
#include "tests/support/lockstep_machine.hpp"
#include "tests/support/report_numbers.hpp"

// Fibers under ThreadSanitizer are the lock-step suite's business.
#if !defined(__SANITIZE_THREAD__)

using namespace w4moe;
using namespace w4moe::test;

namespace {

const std::string kKernels = W4MOE_BINARY_DIR "/kernels";

EngineOptions lockstep_options() { return lockstep_engine_options(kKernels); }

class LockstepMachine : public CpuMachine {
 public:
  LockstepMachine() : CpuMachine(kKernels) {}
};

}  // namespace

#define W4MOE_REPORT(name, call) \
  TEST_CASE(name) {              \
    LockstepMachine machine;     \
    call;                        \
  }

W4MOE_REPORT("N01: gate and up stay apart, MXFP4", check_gate_and_up_apart(machine, kMxfp4))
W4MOE_REPORT("N01: gate and up stay apart, NVFP4", check_gate_and_up_apart(machine, kNvfp4))
W4MOE_REPORT("N02: every expert is as right as the first", check_each_expert(machine, kMxfp4))
W4MOE_REPORT("N03: 80 features a rank", check_shard(machine, small_shape(kNvfp4), kNvfp4, Activation::silu, {2, 9}))
TEST_CASE("N04: shards that no tile divides: one verdict at every stage") {
  LockstepMachine machine;
  for (const Activation activation : {Activation::silu, Activation::relu2}) {
    for (const QuantFormat& format : {kMxfp4, kNvfp4, int4_format(32), int4_format(128)}) {
      for (const i64 intermediate : {928, 464, 232}) check_one_verdict(machine, intermediate, format, activation);
    }
  }
}
W4MOE_REPORT("N06: the output is H wide, between rows that lie apart and at its end", check_output_width(machine))
W4MOE_REPORT("N08: what the scratch held before does not show", check_scratch_fillings(machine))
W4MOE_REPORT("N09, N11: any id; experts without tokens; none at all gives zeros where NaNs lay", check_ids(machine))
W4MOE_REPORT("N09: four ranks with mapped ids add up", check_expert_ranks(machine))
W4MOE_REPORT("N12: no tokens", check_no_tokens(machine))
W4MOE_REPORT("N16, N17: every flavour of the gated activation equals its own reference and no other", check_activation_matrix(machine))
W4MOE_REPORT("N18: the output bias of a tensor-parallel group counts once", check_output_bias_owner(machine))
W4MOE_REPORT("N19: a NaN scale gives NaN in the outputs that use it and nowhere else", check_nan_scales(machine))
W4MOE_REPORT("N19: all scale bytes through the whole kernel, wide", check_all_scale_bytes(machine, kMxfp4Wide))
W4MOE_REPORT("N19: all scale bytes through the whole kernel, in windows", check_all_scale_bytes(machine, kMxfp4))
W4MOE_REPORT("N24: gate and up globals that differ tenfold", check_globals(machine))
W4MOE_REPORT("N25: scales are stepped in groups of 32", check_group_steps(machine, 32))
W4MOE_REPORT("N25: scales are stepped in groups of 64", check_group_steps(machine, 64))
W4MOE_REPORT("N25: scales are stepped in groups of 128", check_group_steps(machine, 128))
W4MOE_REPORT("N25: scales are stepped by whole rows", check_group_steps(machine, kWholeRow))
W4MOE_REPORT("N26: zero points 0..15 in every declared order", check_zero_points(machine))
W4MOE_REPORT("N31: expert counts around the powers of two", check_expert_counts(machine, {1, 127, 128, 129, 512, 513, 1024, 1025}, {9}))
W4MOE_REPORT("S16: a token too many is refused and writes nothing; the most uneven routing fits the scratch", check_capacity(machine))

TEST_CASE("N34: every token count across the buckets gives each token what it gets alone") {
  LockstepMachine machine;
  Shape shape = small_shape(kMxfp4);
  shape.max_tokens = 40;
  const Problem problem = report_problem(shape, kMxfp4);
  SyntheticLayer source = make_layer(problem);
  MachineLayer layer(machine, problem, source.source);  // the direct kernels too
  for (const Bucket& bucket : layer.plan().buckets) {
    for (const i64 tokens : {bucket.first_tokens, bucket.last_tokens}) layer.run_right(make_inputs(problem, tokens).inputs);
  }
}

TEST_CASE("W5: prepare on the lock-step device gives the CPU packer's bytes, and refuses what is too small") {
  LockstepMachine machine;
  const Problem problem = report_problem(small_shape(kNvfp4), kNvfp4);
  SyntheticLayer source = make_layer(problem);
  const Plan plan = value_of(make_plan(problem, value_of(machine.engine().device())));
  HostBuffer dest(plan.prepared_weight_bytes());
  for (const bool on_device : {false, true}) {
    dest.fill(0xa5);
    source.source.on_device = on_device;
    const PreparedWeights prepared = value_of(machine.engine().prepare(plan, source.source, dest.data(), dest.bytes(), nullptr, 0, nullptr));
    CHECK(prepared.data == dest.data());
    std::vector<std::byte> bytes(static_cast<std::size_t>(dest.bytes()));
    dest.download(bytes.data(), dest.bytes(), 0);
    source.source.on_device = false;
    CHECK(first_difference(bytes, packed(problem, source.source)) == -1);
  }
  const auto refused = machine.engine().prepare(plan, source.source, dest.data(), dest.bytes() - 1, nullptr, 0, nullptr);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find(std::to_string(dest.bytes())) != std::string::npos);
}

// N15, S18: the order in which threads and CTAs take their turns changes no bit, and no schedule shows a race: the device reports what
// one thread reads while another may still write it. Two layers in one stream, so that launches overlap.
TEST_CASE("N15, S18: seeded schedules of overlapping layers give the same bits, 8, 256 and 512 experts") {
  constexpr i64 kTokens = 5;
  for (const i64 experts : {8, 256, 512}) {
    Shape shape = small_shape(kMxfp4);
    shape.experts = experts;
    shape.topk = 4;
    const Problem problem = report_problem(shape, kMxfp4);
    PlanOptions options;
    options.pins = {"no-direct"};
    Engine planner = value_of(Engine::create(lockstep_options()));
    const Plan plan = value_of(make_plan(problem, value_of(planner.device()), options));
    const SyntheticLayer source = make_layer(problem);
    HostBuffer weights(plan.prepared_weight_bytes());
    succeeds(pack_on_cpu(problem, source.source, {static_cast<std::byte*>(weights.data()), static_cast<std::size_t>(weights.bytes())}));
    const SyntheticInputs inputs = make_inputs(problem, kTokens);
    std::vector<u16> first;
    for (const u64 seed : {0, 1, 2}) {
      lockstep::Options schedule;
      schedule.random = seed != 0;
      schedule.seed = seed;
      schedule.cache_dir = W4MOE_BINARY_DIR "/kernels/lockstep";
      lockstep::LockstepEngine engine(schedule);
      HostBuffer scratch(plan.required_bytes());
      succeeds(lockstep::LockstepEngine::init_scratch(plan, scratch.data(), scratch.bytes()));
      HostBuffer x(kTokens * shape.hidden * 2), ids(kTokens * shape.topk * 4), router(kTokens * shape.topk * 4), out(kTokens * shape.hidden * 2);
      x.upload(inputs.x.data(), x.bytes(), 0);
      ids.upload(inputs.ids.data(), ids.bytes(), 0);
      router.upload(inputs.weights.data(), router.bytes(), 0);
      out.fill(0xff);
      RunArgs args;
      args.tokens = kTokens;
      args.x = x.data();
      args.ids = ids.data();
      args.router_weights = router.data();
      args.out = out.data();
      succeeds(engine.run(plan, value_of(lockstep::LockstepEngine::adopt(weights.data(), weights.bytes())), scratch.data(), scratch.bytes(), args, 2));
      std::vector<u16> bits(static_cast<std::size_t>(kTokens * shape.hidden));
      out.download(bits.data(), out.bytes(), 0);
      if (first.empty()) first = bits;
      INFO(experts << " experts, seed " << seed);
      REQUIRE(bits == first);
    }
    LockstepMachine machine;
    MachineLayer layer(machine, problem, source.source, options);
    layer.require_right(inputs.inputs, first);
  }
}

#endif
