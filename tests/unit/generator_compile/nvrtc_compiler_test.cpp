#include "generator/compile/nvrtc_compiler.hpp"

#include <algorithm>

#include "generator/compile/kernel_check.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/cubin_builder.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/generator_compile/fake_nvrtc/loaded_fake.hpp"
#include "tests/unit/generator_compile/variants.hpp"

using namespace w4moe;
using test::FakeCubin;
using test::LoadedFake;

namespace {

struct Setup {
  test::TempDir dir;
  LoadedFake fake{dir / "fake"};
  NvrtcCompiler compiler{NvrtcSearch{.explicit_path = fake.file()}};
  CompileRequest request = compile_request(test::fc1_nvfp4());

  Setup() {
    fake->probe_cubin = FakeCubin{.facts = {{"w4moe_fact_build", 88}}}.bytes();
    fake->cubin = FakeCubin{}.bytes();
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a compile hands NVRTC the texts and options, and nothing of the machine") {
  Setup s;
  const Result<CompiledKernel> kernel = s.compiler.compile(s.request);
  REQUIRE(kernel);
  CHECK(kernel->cubin == s.fake->cubin);
  CHECK(kernel->nvrtc_version == "13.0.88");
  CHECK(kernel->log.empty());
  CHECK(kernel->compile_ms >= 0);
  CHECK(kernel->facts.kernels[0].name == "w4moe_fc1");
  CHECK(kernel->facts.kernels[0].spill_source == SpillSource::log);
  CHECK(s.fake->source == s.request.source.entry_text);
  CHECK(s.fake->source_name == "w4moe_fc1.cu");
  CHECK(s.fake->options == compiler_options(s.request));
  CHECK(s.fake->options.front() == "-arch=sm_90a");
  CHECK(std::count(s.fake->options.begin(), s.fake->options.end(), "-no-source-include") == 1);
  for (const std::string& option : s.fake->options) {
    CHECK_FALSE(has(option, "-I"));
    CHECK_FALSE(has(option, "/"));
  }
  CHECK(s.fake->headers.size() == template_bundle().size() + 1);
  CHECK(s.fake->headers.front() == "w4moe_variant.h");
  CHECK(s.fake->programs == 0);
}

TEST_CASE("C33: a failed compile is an error with the whole log, and its program is freed") {
  Setup s;
  REQUIRE(s.compiler.build());
  s.fake->status = 6;
  s.fake->log = "w4moe_fc1.cu(3): error: expected a \";\"\n\n1 error detected in the compilation of \"w4moe_fc1.cu\".\n" + std::string(100000, 'x');
  const Result<CompiledKernel> kernel = s.compiler.compile(s.request);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::compile_failed);
  CHECK(has(kernel.error().message, s.fake->log));
  CHECK(has(kernel.error().message, s.request.source.description));
  CHECK(has(kernel.error().message, "NVRTC_ERROR_COMPILATION"));
  CHECK(s.fake->programs == 0);
}

TEST_CASE("C33: a success that is no usable kernel is an error") {
  Setup s;
  const auto error_of = [&](const std::vector<std::byte>& cubin) {
    s.fake->cubin = cubin;
    const Result<CompiledKernel> kernel = s.compiler.compile(s.request);
    REQUIRE_FALSE(kernel);
    CHECK(kernel.error().code == ErrorCode::compile_failed);
    return kernel.error().message;
  };
  CHECK(has(error_of({}), "0 bytes"));
  CHECK(has(error_of(std::vector<std::byte>(1000)), "not a usable cubin"));
  CHECK(has(error_of(FakeCubin{.sm = 100}.bytes()), "built for sm_100a, wanted sm_90a"));
  CHECK(has(error_of(FakeCubin{.kernels = {}}.bytes()), "defines 0 kernels"));
  CHECK(has(error_of(FakeCubin{.kernels = {{.name = "w4moe_fc2"}}}.bytes()), "should define w4moe_fc1 alone"));
  CHECK(has(error_of(FakeCubin{.kernels = {{.name = "a"}, {.name = "w4moe_fc1"}}}.bytes()), "defines 2 kernels"));
}

TEST_CASE("warnings stay in the log, and spills are counted from it") {
  Setup s;
  s.fake->cubin = FakeCubin{.kernels = {{.stack_bytes = 24}}}.bytes();
  s.fake->log = "ptxas warning : Registers are spilled to local memory in function 'w4moe_fc1', 8 bytes spill stores, 12 bytes spill loads\n";
  const Result<CompiledKernel> kernel = s.compiler.compile(s.request);
  REQUIRE(kernel);
  CHECK(kernel->log == s.fake->log.substr(0, s.fake->log.size() - 1));
  CHECK(kernel->facts.kernels[0].spill_bytes == 20);
}

TEST_CASE("an architecture that NVRTC does not know is refused before compiling, with those it knows") {
  Setup s;
  s.fake->archs = {80, 90};
  s.request = compile_request(test::fc2_int4());
  const Result<CompiledKernel> kernel = s.compiler.compile(s.request);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::toolchain_missing);
  CHECK(has(kernel.error().message, "cannot compile for sm_120a; it knows sm_80, sm_90"));
  CHECK(s.fake->compiles == 0);
}

TEST_CASE("C21: a compiler that is made but never asked loads nothing, and its absence is told when it is asked") {
  const test::TempDir dir;
  NvrtcCompiler compiler(NvrtcSearch{.explicit_path = (dir / "absent.so").string()});
  const Result<CompiledKernel> kernel = compiler.compile(compile_request(test::fc1_nvfp4()));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::toolchain_missing);
  CHECK(has(kernel.error().message, (dir / "absent.so").string()));
  CHECK_FALSE(compiler.build());
}

TEST_CASE("other templates than the library's can be compiled") {
  Setup s;
  s.request.templates = std::make_shared<const std::vector<TemplateFile>>(std::vector<TemplateFile>{{"kernels/fc1.cuh", "x"}});
  REQUIRE(s.compiler.compile(s.request));
  CHECK(s.fake->headers == std::vector<std::string>{"w4moe_variant.h", "kernels/fc1.cuh"});
}
