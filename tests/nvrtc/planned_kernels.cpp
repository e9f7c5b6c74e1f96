#include "tests/nvrtc/planned_kernels.hpp"

#include <algorithm>
#include <iterator>

#include "generator/render/variant_header.hpp"
#include "tests/support/catch.hpp"

namespace w4moe::test {
namespace {

// One format of each way to read codes, scales and zero points.
constexpr const char* kFormats[] = {"mxfp4", "mxfp4:wide", "nvfp4", "int4:g32", "int4:g64:f16", "int4:g128:zp", "int4:row:zp:f16"};

Problem make_problem(Shape shape, const std::string& format, Activation activation, DType dtype) {
  Problem problem;
  problem.shape = shape;
  problem.format = *parse_format(format);
  problem.activation = activation;
  problem.params = default_params(activation);
  problem.dtype = dtype;
  problem.name = format + "." + std::string(to_string(activation)) + "." + std::string(to_string(dtype));
  return problem;
}

// Widths of public models, so that the budgets are those of kernels in use. max_tokens reaches every width of the ladder.
constexpr Shape kQwen3{2048, 768, 128, 8, 4096};
constexpr Shape kGptOss{2880, 2880, 128, 4, 4096};   // neither is a multiple of 128
constexpr Shape kWide{6144, 512, 160, 8, 4096};
constexpr Shape kLongK{7168, 256, 256, 8, 1};       // one token only
constexpr Shape kRagged{1056, 200, 16, 2, 1024};     // neither is a whole number of units, nor 200 of groups

std::vector<PlannedCase> full_cases(Arch arch) {
  std::vector<PlannedCase> cases;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const char* format : kFormats) {
      cases.push_back({make_problem(kQwen3, format, Activation::silu, dtype), arch});
      cases.push_back({make_problem(kWide, format, Activation::relu2, dtype), arch, {"n8"}});
    }
  }
  cases.push_back({make_problem(kGptOss, "mxfp4", Activation::swiglu_oai, DType::bf16), arch});
  for (const char* format : {"nvfp4", "mxfp4", "int4:g32"}) {  // FC1 of few strips with a long K has a direct kernel
    PlannedCase one{make_problem(kLongK, format, Activation::silu, DType::bf16), arch, {}};
    one.problem.shape.max_tokens = 1;
    one.problem.name = "long-k." + one.problem.name;
    cases.push_back(one);
  }
  if (arch == Arch::sm_90a) {
    cases.push_back({make_problem(kQwen3, "mxfp4", Activation::silu, DType::bf16), arch, {"wgmma"}});
    cases.push_back({make_problem(kQwen3, "nvfp4", Activation::silu, DType::bf16), arch, {"wgmma"}});
    cases.push_back({make_problem(kGptOss, "mxfp4", Activation::swiglu_oai, DType::bf16), arch, {"wgmma"}});
    cases.push_back({make_problem(kWide, "nvfp4", Activation::relu2, DType::bf16), arch, {"w48"}});
  }
  for (int i = 0; i < kActivationCount; ++i) {
    const auto activation = static_cast<Activation>(i);
    cases.push_back({make_problem(kWide, "nvfp4", activation, i % 2 == 0 ? DType::bf16 : DType::f16), arch, {"n8"}});
  }
  PlannedCase ragged{make_problem(kRagged, "mxfp4", Activation::silu, DType::bf16), arch, {"n16"}};
  ragged.problem.compact_tail = true;
  ragged.problem.name = "ragged." + ragged.problem.name;
  cases.push_back(ragged);
  return cases;
}

std::vector<PlannedCase> few_cases(Arch arch) {
  return {
      {make_problem(kGptOss, "mxfp4", Activation::swiglu_oai, DType::bf16), arch, {"n8", "n64"}},
      {make_problem(kWide, "nvfp4", Activation::silu, DType::f16), arch, {"n16", "n32"}},
      {make_problem(kQwen3, "int4:g128:zp", Activation::silu, DType::bf16), arch, {"n64"}},
      {make_problem(kQwen3, "int4:g32", Activation::gelu_ungated, DType::f16), arch, {"n8"}},
  };
}

}  // namespace

std::vector<NamedKernel> planned_kernels(const std::vector<PlannedCase>& cases) {
  std::vector<NamedKernel> kernels;
  for (const PlannedCase& c : cases) {
    const DeviceSpec device = named_device(c.arch);
    std::vector<PlanOptions> options;
    for (const std::string& width : c.widths) options.push_back(PlanOptions{{width}, 0});
    if (options.empty()) options.push_back(PlanOptions{{"portable"}, 0});
    for (const PlanOptions& o : options) {
      const Result<Plan> plan = make_plan(c.problem, device, o);
      INFO(c.problem.name << " on " << device.name << ": " << (plan ? "" : plan.error().message));
      REQUIRE(plan);
      for (const PlannedKernel& kernel : plan->kernels) {
        const auto same = [&](const NamedKernel& k) { return k.variant == kernel.variant; };
        if (std::any_of(kernels.begin(), kernels.end(), same)) continue;
        kernels.push_back({std::string(to_string(c.arch)) + "/" + c.problem.name + "/" + kernel.name, kernel.variant, device});
      }
    }
  }
  return kernels;
}

std::vector<NamedKernel> matrix_of(Arch arch) {
  const bool full = arch == Arch::sm_90a;
  std::vector<NamedKernel> kernels = planned_kernels(full ? full_cases(arch) : few_cases(arch));
  // Plans do not hold the kernels that prepare weights; of their variants only the format matters.
  for (const KernelKind kind : {KernelKind::pack, KernelKind::scan}) {
    for (const char* format : full ? std::vector<const char*>(std::begin(kFormats), std::end(kFormats)) : std::vector<const char*>{"nvfp4"}) {
      Variant v;
      v.kind = kind;
      v.arch = arch;
      v.format = *parse_format(format);
      kernels.push_back({std::string(to_string(arch)) + "/" + format + "/" + std::string(kind_name(kind)), v, named_device(arch)});
    }
  }
  return kernels;
}

}  // namespace w4moe::test
