// Structures of other versions, values out of range, exceptions that must not get out, and weights through the C structures.
#include <cstring>

#include "runtime/reference/synthetic.hpp"
#include "tests/support/layers.hpp"
#include "tests/unit/capi/failing_memory.hpp"
#include "tests/unit/capi/support.hpp"

using namespace w4moe;

namespace {
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
}  // namespace

using namespace w4moe::test;

TEST_CASE("c api: no exception gets out, wherever memory runs out") {
  const w4moe_problem problem = c_problem();
  w4moe_plan_options options;
  W4MOE_INIT(options);
  options.arch = "sm_90a";
  int failed = 0;
  for (long allowed = 0; allowed < 100000; allowed += 1 + allowed / 8) {
    w4moe_plan* plan = nullptr;
    allocations_left = allowed;
    const w4moe_status status = w4moe_plan_create(nullptr, &problem, &options, &plan);
    allocations_left = -1;
    if (status == W4MOE_OK) {
      allocations_left = 0;
      const char* const explained = w4moe_plan_explain(plan);
      allocations_left = -1;
      CHECK(explained == nullptr);
      CHECK(w4moe_plan_explain(plan) != nullptr);
      w4moe_plan_destroy(plan);
      break;
    }
    ++failed;
    CHECK(plan == nullptr);
    CHECK(c_error(status, W4MOE_OUT_OF_HOST_MEMORY) == "out of host memory");
  }
  CHECK(failed > 10);
}

TEST_CASE("c api: a callback ends a build") {
  FakeWorld world;
  const OwnedEngine engine = c_engine(world);
  const OwnedPlan plan = c_plan(engine);
  world.compiler->add(plan.handle->plan);
  w4moe_build_options build;
  W4MOE_INIT(build);
  build.cancelled = [](void*) -> int32_t { return 1; };
  CHECK(has(c_error(w4moe_engine_build(engine, plan, &build, nullptr), W4MOE_NOT_PREPARED), "cancelled"));
  CHECK(world.compiler->compiles == 0);
}

TEST_CASE("c api: structures of an older header end in zeros, of a newer one must") {
  struct Newer {
    w4moe_problem known;
    uint64_t added;
  } newer{c_problem(), 0};
  newer.known.struct_size = sizeof(newer);
  w4moe_plan_options options;
  W4MOE_INIT(options);
  options.arch = "sm_90a";
  w4moe_plan* plan = nullptr;
  c_ok(w4moe_plan_create(nullptr, &newer.known, &options, &plan));
  w4moe_plan_destroy(plan);
  newer.added = 1;
  CHECK(has(c_error(w4moe_plan_create(nullptr, &newer.known, &options, &plan), W4MOE_UNSUPPORTED), "newer version"));
  CHECK(plan == nullptr);

  w4moe_problem older = c_problem();
  older.alpha = 9;  // beyond what the older structure ends with
  older.has_alpha = 1;
  older.struct_size = offsetof(w4moe_problem, has_alpha);
  c_ok(w4moe_plan_create(nullptr, &older, &options, &plan));
  struct {
    w4moe_plan_info info;
  } out;
  std::memset(&out, 0x5a, sizeof(out));
  out.info.struct_size = offsetof(w4moe_plan_info, layout_id);
  c_ok(w4moe_plan_get_info(plan, &out.info));
  CHECK(out.info.prepared_weight_bytes > 0);
  CHECK(out.info.layout_id == 0x5a5a5a5a5a5a5a5aull);  // not an older caller's to be written
  CHECK(out.info.struct_size == offsetof(w4moe_plan_info, layout_id));
  w4moe_plan_destroy(plan);

  for (const uint64_t size : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40}) {
    w4moe_problem unset = c_problem();
    unset.struct_size = size;
    CHECK(has(c_error(w4moe_plan_create(nullptr, &unset, &options, &plan), W4MOE_INVALID_ARGUMENT), "W4MOE_INIT"));
  }
}

TEST_CASE("c api: values of a problem and of options are refused by name") {
  w4moe_plan_options options;
  W4MOE_INIT(options);
  options.arch = "sm_90a";
  const auto refused = [&](auto change, const std::string& part, w4moe_status status = W4MOE_INVALID_ARGUMENT) {
    w4moe_problem problem = c_problem();
    change(problem);
    w4moe_plan* plan = nullptr;
    const std::string text = c_error(w4moe_plan_create(nullptr, &problem, &options, &plan), status);
    INFO(text);
    CHECK(has(text, part));
  };
  refused([](w4moe_problem& p) { p.format = nullptr; }, "format is NULL");
  refused([](w4moe_problem& p) { p.format = "fp4"; }, "fp4");
  refused([](w4moe_problem& p) { p.activation = "swish"; }, "swish");
  refused([](w4moe_problem& p) { p.dtype = 0; }, "dtype = 0");
  refused([](w4moe_problem& p) { p.dtype = W4MOE_DTYPE_F32; }, "dtype = 3");
  refused([](w4moe_problem& p) { p.has_alpha = 1; p.alpha = 2; }, "alpha");            // N17: silu has none
  refused([](w4moe_problem& p) { p.has_limit = p.no_limit = 1; }, "both set");
  refused([](w4moe_problem& p) { p.intermediate = 80; }, "32", W4MOE_UNSUPPORTED);     // N03
  refused([](w4moe_problem& p) { p.format = "int4:g128"; p.intermediate = 704; }, "128", W4MOE_UNSUPPORTED);  // N25
  w4moe_problem problem = c_problem();
  problem.activation = "swiglu-oai";
  problem.no_limit = 1;
  w4moe_plan* plan = nullptr;
  c_ok(w4moe_plan_create(nullptr, &problem, &options, &plan));
  CHECK(plan->plan.problem.params.has_limit == 0);
  CHECK(plan->plan.problem.params.alpha == 1.702f);
  w4moe_plan_destroy(plan);
  options.pins = "no-such-pin";
  CHECK(has(c_error(w4moe_plan_create(nullptr, &problem, &options, &plan), W4MOE_INVALID_ARGUMENT), "no-such-pin"));
}

TEST_CASE("c api: checkpoints and packed files that are not there, and NULL") {
  w4moe_checkpoint* checkpoint = nullptr;
  CHECK(has(c_error(w4moe_checkpoint_open("/nowhere/at/all", &checkpoint), W4MOE_IO), "/nowhere/at/all"));
  CHECK(checkpoint == nullptr);
  CHECK(has(c_error(w4moe_checkpoint_open(nullptr, &checkpoint), W4MOE_INVALID_ARGUMENT), "path is NULL"));
  CHECK(w4moe_checkpoint_count(nullptr) == 0);
  w4moe_layer* layer = nullptr;
  CHECK(has(c_error(w4moe_checkpoint_read(nullptr, "0", nullptr, &layer), W4MOE_INVALID_ARGUMENT), "checkpoint is NULL"));
  CHECK(w4moe_layer_problem(nullptr) == nullptr);
  CHECK(w4moe_layer_source(nullptr) == nullptr);
  w4moe_packed_file* file = nullptr;
  CHECK(has(c_error(w4moe_packed_open("/nowhere/at/all", &file), W4MOE_IO), "/nowhere/at/all"));
  CHECK(file == nullptr);
  CHECK(w4moe_packed_count(nullptr) == 0);
  w4moe_checkpoint_destroy(nullptr);
  w4moe_layer_destroy(nullptr);
  w4moe_packed_destroy(nullptr);
}

namespace {

/// Tensors of the C++ structures as C ones. The shapes stay where they are.
struct CSource {
  std::vector<std::vector<w4moe_tensor>> tensors;
  w4moe_source_weights source;

  explicit CSource(const SourceWeights& from) {
    tensors.reserve(16);
    W4MOE_INIT(source);
    source.gate_up_order = static_cast<int32_t>(from.gate_up_order);
    source.code_order = static_cast<int32_t>(from.code_order);
    source.code_sign = static_cast<int32_t>(from.code_sign);
    source.scale_layout = static_cast<int32_t>(from.scale_layout);
    source.zero_order = static_cast<int32_t>(from.zero_order);
    source.zero_add = from.zero_add;
    source.global_convention = static_cast<int32_t>(from.global_convention);
    source.gate_up = matrix(from.gate_up);
    source.gate = matrix(from.gate);
    source.up = matrix(from.up);
    source.down = matrix(from.down);
    source.gate_global = from.gate_global.empty() ? nullptr : from.gate_global.data();
    source.up_global = from.up_global.empty() ? nullptr : from.up_global.data();
    source.down_global = from.down_global.empty() ? nullptr : from.down_global.data();
  }
  w4moe_operand operand(const SourceOperand& from) {
    auto& list = tensors.emplace_back();
    for (const SourceTensor& t : from) {
      // SourceTensor counts in long long, the C structure in int64_t: the same bits.
      list.push_back(w4moe_tensor{t.data, reinterpret_cast<const int64_t*>(t.shape.data()),
                                  t.strides_elems.empty() ? nullptr : reinterpret_cast<const int64_t*>(t.strides_elems.data()),
                                  static_cast<int32_t>(t.type) + 1, static_cast<int32_t>(t.shape.size())});
    }
    return w4moe_operand{list.data(), static_cast<int64_t>(list.size())};
  }
  w4moe_matrix matrix(const SourceMatrix& from) { return w4moe_matrix{operand(from.codes), operand(from.scales), operand(from.zeros), operand(from.bias)}; }
};

}  // namespace

TEST_CASE("N26, N24: c api: packing through the C structures gives the C++ bytes, in every format") {
  for (const char* format : {"mxfp4", "nvfp4", "int4:g32", "int4:g64:zp", "int4:row:f16"}) {
    INFO(format);
    w4moe_problem from = c_problem();
    from.format = format;
    from.has_bias = 1;
    const OwnedPlan plan = [&] {
      w4moe_plan_options options;
      W4MOE_INIT(options);
      options.arch = "sm_90a";
      OwnedPlan made;
      c_ok(w4moe_plan_create(nullptr, &from, &options, &made.handle));
      return made;
    }();
    const Problem& problem = plan.handle->plan.problem;
    const SyntheticLayer layer = make_layer(problem);
    CSource c(layer.source);
    std::vector<std::byte> dest(static_cast<std::size_t>(plan.handle->plan.prepared_weight_bytes()), std::byte{0xa5});
    const auto bytes = static_cast<int64_t>(dest.size());
    std::vector<int64_t> done;
    w4moe_pack_options options;
    W4MOE_INIT(options);
    options.user = &done;
    options.on_expert_done = [](void* user, int64_t expert) { static_cast<std::vector<int64_t>*>(user)->push_back(expert); };
    c_ok(w4moe_pack_on_cpu(plan, &c.source, dest.data(), bytes, &options));
    CHECK(first_difference(dest, packed(problem, layer.source)) == -1);
    CHECK(done.size() == 8);  // S14: each expert's tensors may go as soon as they are read
    c_ok(w4moe_check_prepared(plan, dest.data(), bytes));
    CHECK(has(c_error(w4moe_check_prepared(plan, dest.data(), bytes - 1), W4MOE_CORRUPT), std::to_string(bytes - 1)));
    CHECK(has(c_error(w4moe_pack_on_cpu(plan, &c.source, dest.data(), bytes - 1, nullptr), W4MOE_INVALID_ARGUMENT), std::to_string(bytes)));
    options.threads = 1;
    options.on_expert_done = [](void*, int64_t) { throw 5; };  // a C++ caller's mistake: an error, no end of the process
    CHECK(has(c_error(w4moe_pack_on_cpu(plan, &c.source, dest.data(), bytes, &options), W4MOE_INTERNAL), "no std::exception"));
    w4moe_scan_report scan;
    W4MOE_INIT(scan);
    c_ok(w4moe_scan_on_cpu(plan, &c.source, 1, &scan));
    CHECK(std::string(scan.recommended_format) == to_string(problem.format));

    const auto refused = [&](auto change, const std::string& part) {
      CSource wrong(layer.source);
      change(wrong);
      const std::string text = c_error(w4moe_pack_on_cpu(plan, &wrong.source, dest.data(), bytes, nullptr), W4MOE_INVALID_ARGUMENT);
      INFO(text);
      CHECK(has(text, part));
    };
    refused([](CSource& s) { s.source.code_order = 0; }, "code_order is not named");
    refused([](CSource& s) { s.source.scale_layout = 9; }, "scale_layout = 9");
    refused([](CSource& s) { s.tensors[0][0].type = 0; }, "gate_up.codes[0]: type 0");
    refused([](CSource& s) { s.tensors[0][0].rank = 9; }, "rank 9");
    refused([](CSource& s) { s.tensors[0][0].data = nullptr; }, "gate_up.codes");
    refused([](CSource& s) { s.source.down.scales.count = 0; }, "down.scales: missing");
    if (problem.format.has_zero_point) refused([](CSource& s) { s.source.zero_order = 0; }, "zero_order is not named");
    if (problem.format.is_int4()) refused([](CSource& s) { s.source.code_sign = 0; }, "code_sign is not named");
    if (problem.format.is_nvfp4()) refused([](CSource& s) { s.source.up_global = nullptr; }, "up_global");
  }
}
