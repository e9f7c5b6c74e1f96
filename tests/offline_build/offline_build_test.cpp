// Kernels built with the real compiler and no GPU: what a build machine does, and what a container without a compiler does with it.
#include <filesystem>

#include "generator/compile/nvrtc_library.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"
#include "w4moe/build.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

/// One token: two GEMM kernels, the least that a layer can need.
Plan one_token_plan() {
  Problem p;
  p.name = "one token";
  p.shape = Shape{256, 128, 8, 2, 1};
  p.format = kMxfp4;
  const auto plan = make_plan(p, named_device(Arch::sm_90a));
  REQUIRE(plan.ok());
  return *plan;
}

KernelOptions options_for(const std::filesystem::path& dir) {
  KernelOptions options;
  options.jit = JitMode::on;
  options.cache = CacheUse::on;
  options.cache_dir = dir.string();
  options.readonly_dirs = std::vector<std::string>{};
  options.jobs = 2;
  return options;
}

BuildReport built(const Plan& plan, const KernelOptions& options) {
  const auto report = build_kernels(plan, options);
  INFO((report ? std::string() : report.error().message));
  REQUIRE(report.ok());
  return *report;
}

}  // namespace

TEST_CASE("C21, C15, O07: kernels built without a GPU serve a process without a compiler, from wherever they are moved to") {
  if (const auto nvrtc = NvrtcLibrary::load(); !nvrtc) W4MOE_SKIP(nvrtc.error().message);
  const TempDir dir;
  const Plan plan = one_token_plan();
  const int count = static_cast<int>(plan.kernels.size()) + 2;  // and the two that pack weights
  REQUIRE(count >= 4);

  KernelOptions options = options_for(dir / "a");
  std::vector<std::string> log;
  options.log = [&](LogLevel level, const std::string& message) {
    if (level == LogLevel::warning) log.push_back(message);
  };
  const BuildReport cold = built(plan, options);
  CHECK(cold.compiled == count);
  for (const KernelReport& kernel : cold.kernels) {
    CHECK(kernel.arch == "sm_90a");
    CHECK(kernel.registers > 0);
    CHECK(kernel.registers <= 255);
    CHECK(kernel.spill_bytes == 0);
    CHECK((kernel.smem_bytes > 0) == (kernel.name != "scan" && kernel.name != "pack"));
    CHECK(kernel.compile_ms > 0);
    CHECK_FALSE(kernel.builder.empty());
  }
  CHECK(built(plan, options).hits == count);

  std::filesystem::rename(dir / "a", dir / "b");
  KernelOptions shipped = options_for(dir / "none");
  shipped.cache = CacheUse::readonly;
  shipped.readonly_dirs = std::vector<std::string>{(dir / "b").string()};
  shipped.jit = JitMode::off;
  const BuildReport warm = built(plan, shipped);
  CHECK(warm.hits == count);
  for (std::size_t i = 0; i < warm.kernels.size(); ++i) {
    CHECK(warm.kernels[i].key == cold.kernels[i].key);
    CHECK(warm.kernels[i].spill_bytes == 0);
  }
  // The same with JIT on and no compiler: what is there is served.
  KernelOptions bare = shipped;
  bare.jit = JitMode::on;
  bare.nvrtc = (dir / "no-such-libnvrtc.so").string();
  CHECK(built(plan, bare).hits == count);
  CHECK_FALSE(std::filesystem::exists(dir / "none"));

  Problem other = plan.problem;
  other.shape.hidden = 512;
  const auto other_plan = make_plan(other, named_device(Arch::sm_90a));
  REQUIRE(other_plan.ok());
  const auto missing = build_kernels(*other_plan, shipped);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == ErrorCode::not_prepared);
  const auto no_compiler = build_kernels(*other_plan, bare);
  REQUIRE_FALSE(no_compiler.ok());
  CHECK(no_compiler.error().code == ErrorCode::toolchain_missing);
  CHECK(no_compiler.error().message.find("no-such-libnvrtc.so") != std::string::npos);
  CHECK(log.empty());
}

TEST_CASE("list_kernels tells what a build would make and writes nothing") {
  const TempDir dir;
  const Plan plan = one_token_plan();
  KernelOptions options = options_for(dir / "cache");
  std::vector<std::string> log;
  options.log = [&](LogLevel, const std::string& message) { log.push_back(message); };
  const auto listed = list_kernels({&plan, 1}, options);
  REQUIRE(listed.ok());
  CHECK(listed->kernels.size() == plan.kernels.size() + 2);  // and the two that pack weights
  CHECK(listed->hits == 0);
  CHECK(listed->compiled == 0);
  CHECK_FALSE(std::filesystem::exists(dir / "cache"));
  CHECK(log.empty());  // a directory that the first build will make is nothing to warn of
}
