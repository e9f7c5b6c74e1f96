// What the real NVRTC does with this project's sources, beyond compiling them.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "generator/compile/kernel_check.hpp"
#include "tests/nvrtc/nvrtc_support.hpp"
#include "tests/nvrtc/planned_kernels.hpp"
#include "tests/support/env_guard.hpp"
#include "tests/support/temp_dir.hpp"

using namespace w4moe;
namespace fs = std::filesystem;

namespace {

Variant combine_variant() {
  Variant v;
  v.kind = KernelKind::combine;
  v.arch = Arch::sm_90a;
  return v;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The library's templates with one of them changed.
template <class Change>
std::shared_ptr<const std::vector<TemplateFile>> changed_templates(const std::string& path, Change change) {
  auto files = std::make_shared<std::vector<TemplateFile>>(template_bundle());
  const auto it = std::find_if(files->begin(), files->end(), [&](const TemplateFile& f) { return f.path == path; });
  REQUIRE(it != files->end());
  change(it->text);
  return files;
}

/// A folder with the library's own file in it, and beside it only what the test puts there.
fs::path copy_nvrtc(const test::TempDir& dir) {
  const fs::path from = fs::canonical((*test::nvrtc().library())->path());
  const fs::path to = dir / "libnvrtc.so.13";
  fs::copy_file(from, to);
  return to;
}

}  // namespace

TEST_CASE("C33: a syntax error planted in a template fails with the compiler's log") {
  W4MOE_NEEDS_NVRTC();
  CompileRequest request = compile_request(combine_variant());
  request.templates = changed_templates("device/ops_ptx.h", [](std::string& text) { text += "int planted_error = ;\n"; });
  const Result<CompiledKernel> kernel = test::nvrtc().compile(request);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::compile_failed);
  CHECK(has(kernel.error().message, "device/ops_ptx.h("));
  CHECK(has(kernel.error().message, "error"));
  CHECK(has(kernel.error().message, request.source.description));
}

TEST_CASE("C33: what only ptxas notices fails too, with its words") {
  W4MOE_NEEDS_NVRTC();
  CompileRequest request = compile_request(combine_variant());
  request.source.entry_text = "extern \"C\" __global__ void w4moe_combine() { asm volatile(\"nosuchinstruction;\"); }\n";
  const Result<CompiledKernel> kernel = test::nvrtc().compile(request);
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::compile_failed);
  CHECK(has(kernel.error().message, "nosuchinstruction"));
}

TEST_CASE("C13: a changed template changes the key and the binary") {
  W4MOE_NEEDS_NVRTC();
  const CompileRequest base = compile_request(combine_variant());
  CompileRequest changed = base;
  changed.templates = changed_templates("device/facts.h", [](std::string& text) {
    const std::size_t at = text.find("w4moe::kArgsVersion");
    REQUIRE(at != std::string::npos);
    text.insert(at, "1000 + ");
  });
  CHECK(key_fields(base) != key_fields(changed));
  const Result<CompiledKernel> before = test::nvrtc().compile(base);
  const Result<CompiledKernel> after = test::nvrtc().compile(changed);
  REQUIRE(before);
  REQUIRE(after);
  CHECK(before->cubin != after->cubin);
  CHECK(check_kernel(before->facts, combine_variant()));
  const Status stale = check_kernel(after->facts, combine_variant());
  REQUIRE_FALSE(stale);
  CHECK(has(stale.error().message, "w4moe_fact_args_version"));
}

TEST_CASE("C15: the same request gives the same bytes, from any folder, home, locale and thread") {
  W4MOE_NEEDS_NVRTC();
  const CompileRequest request = compile_request(combine_variant());
  const Result<CompiledKernel> first = test::nvrtc().compile(request);
  REQUIRE(first);

  // Headers in the working folder that would break the compile if they were read, and one that nothing else provides.
  const test::TempDir dir;
  for (const TemplateFile& file : template_bundle()) {
    fs::create_directories((dir / file.path).parent_path());
    std::ofstream(dir / file.path) << "#error read from disk\n";
  }
  std::ofstream(dir / "w4moe_variant.h") << "#error read from disk\n";
  std::ofstream(dir / "only_on_disk.h") << "\n";
  const test::EnvGuard home("HOME", dir.path().string());
  const test::EnvGuard zone("TZ", std::string("Asia/Tokyo"));
  const test::EnvGuard path("CPATH", dir.path().string());
  const fs::path old = fs::current_path();
  fs::current_path(dir.path());
  std::vector<Result<CompiledKernel>> others;
  std::thread([&] { others.push_back(test::nvrtc().compile(request)); }).join();
  CompileRequest from_disk = request;
  from_disk.source.entry_text = "#include \"only_on_disk.h\"\n" + from_disk.source.entry_text;
  const Result<CompiledKernel> not_found = test::nvrtc().compile(from_disk);
  fs::current_path(old);
  REQUIRE(others[0]);
  CHECK(others[0]->cubin == first->cubin);
  REQUIRE_FALSE(not_found);
  CHECK(has(not_found.error().message, "only_on_disk.h"));
}

TEST_CASE("threads that compile at once get what one alone gets") {
  W4MOE_NEEDS_NVRTC();
  const Result<CompiledKernel> alone = test::nvrtc().compile(compile_request(combine_variant()));
  REQUIRE(alone);
  std::vector<std::optional<Result<CompiledKernel>>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&result] {
      NvrtcCompiler own(test::nvrtc_search());  // another object loads the same library
      result.emplace(own.compile(compile_request(combine_variant())));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) {
    REQUIRE(*result);
    CHECK((*result)->cubin == alone->cubin);
  }
}

TEST_CASE("line information is an option, off unless asked for") {
  W4MOE_NEEDS_NVRTC();
  const auto names_a_template = [](const CompiledKernel& kernel) {
    const std::string text(reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size());
    return has(text, "combine.cuh");
  };
  const Result<CompiledKernel> plain = test::nvrtc().compile(compile_request(combine_variant()));
  const Result<CompiledKernel> lines = test::nvrtc().compile(compile_request(combine_variant(), CompileOptions{.line_info = true}));
  REQUIRE(plain);
  REQUIRE(lines);
  CHECK_FALSE(names_a_template(*plain));
  CHECK(names_a_template(*lines));
  CHECK(check_kernel(lines->facts, combine_variant()));
}

TEST_CASE("C26: the library names its build, and every target is compiled to a cubin of its own") {
  W4MOE_NEEDS_NVRTC();
  const Result<std::string> build = test::nvrtc().build();
  REQUIRE(build);
  const NvrtcVersion version = (*test::nvrtc().library())->version();
  const std::string head = std::to_string(version.major) + "." + std::to_string(version.minor) + ".";
  CHECK(build->substr(0, head.size()) == head);
  CHECK(build->size() > head.size());
  std::vector<std::vector<std::byte>> cubins;
  for (const Arch arch : known_archs()) {
    Variant v = combine_variant();
    v.arch = arch;
    const Result<CompiledKernel> kernel = test::nvrtc().compile(compile_request(v));
    REQUIRE(kernel);
    CHECK(kernel->nvrtc_version == *build);
    CHECK(kernel->facts.arch() == to_string(arch));  // the suffix too
    CHECK(check_kernel(kernel->facts, v));
    for (const Arch other : known_archs()) {
      if (other != arch) CHECK_FALSE(check_arch(kernel->facts, other));
    }
    CHECK(std::count(cubins.begin(), cubins.end(), kernel->cubin) == 0);
    cubins.push_back(kernel->cubin);
  }
}

TEST_CASE("spilled registers are counted") {
  W4MOE_NEEDS_NVRTC();
  CompileRequest request = compile_request(combine_variant());
  request.templates = std::make_shared<const std::vector<TemplateFile>>();
  request.source.entry_text = R"(
extern "C" __global__ void __launch_bounds__(1024) w4moe_combine(const float* x, float* y) {
  __shared__ float kept[100];
  kept[threadIdx.x % 100] = x[0];
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[i * threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) y[i * threadIdx.x + (int)v[95 - i]] = v[i] * v[95 - i] + kept[i];
})";
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a, Arch::sm_120a}) {
    request.arch = arch;
    const Result<CompiledKernel> kernel = test::nvrtc().compile(request);
    REQUIRE(kernel);
    const CubinKernel& k = kernel->facts.kernels.at(0);
    CHECK(has(kernel->log, "spilled"));
    CHECK(k.spill_bytes > 0);
    CHECK(k.stack_bytes > 0);
    CHECK(k.registers == 64);
    CHECK(k.max_threads == 1024);
    CHECK(k.static_shared_bytes == 400);
    CHECK(k.argument_bytes == 16);
  }
}

TEST_CASE("C24, C25: NVRTC and its builtins alone in a folder are enough: no headers, no loader path") {
  W4MOE_NEEDS_NVRTC();
  const test::TempDir dir;
  const fs::path library = copy_nvrtc(dir);
  const std::string builtins = nvrtc_builtins_name((*test::nvrtc().library())->version());
  const fs::path beside = fs::canonical((*test::nvrtc().library())->path()).parent_path() / builtins;
  if (!fs::exists(beside)) W4MOE_SKIP("the builtins library is not beside NVRTC on this machine");
  fs::copy_file(beside, dir / builtins);
  NvrtcCompiler compiler(NvrtcSearch{.explicit_path = library.string()});
  const Result<CompiledKernel> kernel = compiler.compile(compile_request(combine_variant()));
  REQUIRE(kernel);
  CHECK((*compiler.library())->path() == library.string());
  CHECK(dlopen((dir / builtins).c_str(), RTLD_NOLOAD | RTLD_NOW) != nullptr);
}

TEST_CASE("C24: NVRTC without its builtins gives its own log, the file, the place and a fix") {
  W4MOE_NEEDS_NVRTC();
  // On many machines the loader knows where the builtins are, so the copy is made to ask for a file that nobody has.
  const test::TempDir dir;
  const fs::path library = copy_nvrtc(dir);
  std::string bytes;
  {
    std::ifstream in(library, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::string name = "libnvrtc-builtins.so.";
  int changed = 0;
  for (std::size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + 1), ++changed)
    bytes.replace(at, name.size(), "libnvrtc-absent!!.so.");
  REQUIRE(changed > 0);
  std::ofstream(library, std::ios::binary) << bytes;

  NvrtcCompiler compiler(NvrtcSearch{.explicit_path = library.string()});
  const Result<CompiledKernel> kernel = compiler.compile(compile_request(combine_variant()));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().code == ErrorCode::toolchain_missing);
  CHECK(has(kernel.error().message, "failed to open libnvrtc-absent!!.so."));
  CHECK(has(kernel.error().message, nvrtc_builtins_name((*compiler.library())->version())));
  CHECK(has(kernel.error().message, "loaded from " + library.string()));
  CHECK(has(kernel.error().message, "Put that file"));
}

TEST_CASE("no damage to a real cubin makes the reader read outside of it") {
  W4MOE_NEEDS_NVRTC();
  const Result<CompiledKernel> kernel = test::nvrtc().compile(compile_request(combine_variant()));
  REQUIRE(kernel);
  std::mt19937_64 random(7);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes = kernel->cubin;
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    for (int n = 0; n < 8 && !bytes.empty(); ++n) {
      // The header, the section headers at the end, or anywhere.
      const std::size_t range = n % 3 == 0 ? std::min<std::size_t>(64, bytes.size()) : bytes.size();
      const std::size_t at = n % 3 == 1 ? bytes.size() - 1 - random() % std::min<std::size_t>(bytes.size(), 2048) : random() % range;
      bytes[at] = static_cast<std::byte>(random());
    }
    if (!read_cubin(bytes)) ++refused;
  }
  CHECK(refused > 1000);
}
