// Each intrinsic on a GPU and on the host model, with the same bits. On a GPU machine
//
//   W4MOE_RECORD_CONFORMANCE=tests/conformance/sm_90a.txt build/tests/conformance/w4moe_conformance_tests "gpu: *"
//
// records what the GPU gives; machines without one hold the model against the recording.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "generator/compile/nvrtc_compiler.hpp"
#include "runtime/driver/device_memory.hpp"
#include "runtime/lockstep/device.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/nvrtc/nvrtc_support.hpp"
#include "tests/support/device_layer.hpp"

#if !defined(__SANITIZE_THREAD__)

using namespace w4moe;
using namespace w4moe::conformance;

namespace {

constexpr const char* kRecording = W4MOE_SOURCE_DIR "/tests/conformance/sm_90a.txt";
constexpr const char* kEntry = "w4moe_conformance";

struct Args {
  const void* in = nullptr;
  void* out = nullptr;
  i32 which = 0;
};

std::string kernel_text() {
  std::ifstream in(W4MOE_SOURCE_DIR "/tests/conformance/intrinsics.cuh");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The model's words for every case.
class Model {
 public:
  Model() : device_(options()), kernel_(device_.load({"conformance", kernel_text(), {}, kEntry})) {
    INFO((kernel_ ? std::string() : kernel_.error().message));
    REQUIRE(kernel_.ok());
  }
  std::vector<std::uint32_t> run(const Case& c) {
    alignas(256) static std::uint32_t in[kThreads * kWords];
    const std::vector<std::uint32_t> words = inputs_of(c);
    std::copy(words.begin(), words.end(), in);
    std::vector<std::uint32_t> out = blank_outputs();
    lockstep::Launch grid;
    grid.threads = kThreads;
    grid.shared_bytes = kSharedBytes;
    const Status ran = device_.launch(*kernel_, grid, Args{in, out.data(), c.which});
    INFO(c.name << ": " << (ran ? std::string() : ran.error().message));
    REQUIRE(ran.ok());
    return out;
  }

 private:
  static lockstep::Options options() {
    lockstep::Options options;
    options.source_dir = W4MOE_SOURCE_DIR;
    options.cache_dir = W4MOE_BINARY_DIR "/lockstep-cache";
    return options;
  }
  lockstep::LockstepDevice device_;
  Result<lockstep::Kernel> kernel_;
};

CompileRequest request_for(Arch arch) {
  CompileRequest request;
  request.source.entry_name = kEntry;
  request.source.entry_text = kernel_text();
  request.source.description = "the intrinsics";
  request.arch = arch;
  return request;
}

}  // namespace

TEST_CASE("T1: the host model of every intrinsic runs, and writes what it should write") {
  Model model;
  for (const Case& c : all_cases()) {
    const std::vector<std::uint32_t> out = model.run(c);
    CHECK(difference(c, out, model.run(c)) == "");
    CHECK(out != blank_outputs());
  }
}

TEST_CASE("T1: the host model gives what a GPU gave, intrinsic by intrinsic") {
  if (!std::filesystem::exists(kRecording)) W4MOE_SKIP(std::string("no recording yet: ") + kRecording);
  const Recording recording = read_recording(kRecording);
  Model model;
  for (std::size_t i = 0; i < all_cases().size(); ++i) {
    const Case& c = all_cases()[i];
    if (recording.outputs[i].empty()) continue;
    INFO(recording.machine);
    CHECK(difference(c, recording.outputs[i], model.run(c)) == "");
  }
}

TEST_CASE("A recording reads back as it was written, and one of other inputs is refused") {
  Recording recording{"some machine", {}};
  for (std::size_t i = 0; i < all_cases().size(); ++i) recording.outputs.emplace_back(i % 3 == 2 ? 0 : kOutWords, static_cast<std::uint32_t>(i * 77));
  const std::string path = W4MOE_BINARY_DIR "/recording.txt";
  write_recording(path, recording);
  const Recording back = read_recording(path);
  CHECK(back.machine == recording.machine);
  CHECK(back.outputs == recording.outputs);
  std::ofstream(path, std::ios::trunc) << "w4moe intrinsics 1\nmachine x\ninputs 0000000000000000\n";
  CHECK_THROWS(read_recording(path));
}

TEST_CASE("The intrinsics compile for GPUs old and new") {
  W4MOE_NEEDS_NVRTC();
  for (const Arch arch : {Arch::sm_80, Arch::sm_120a}) {
    const auto compiled = test::nvrtc().compile(request_for(arch));
    INFO((compiled ? std::string() : compiled.error().message));
    CHECK(compiled.ok());
  }
}

TEST_CASE("gpu: every intrinsic gives on this GPU what the host model gives") {
  W4MOE_NEED_GPU(gpu);
  W4MOE_NEEDS_NVRTC();
  const driver::DriverTable& table = *gpu.table;
  Engine engine = test::gpu_must(Engine::create());
  const DeviceSpec device = test::gpu_must(engine.device());
  const CompiledKernel compiled = test::gpu_must(test::nvrtc().compile(request_for(device.arch)));
  driver::Library library = nullptr;
  REQUIRE(table.library_load_data(&library, compiled.cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0) == driver::kSuccess);
  driver::Kernel kernel = nullptr;
  driver::Function function = nullptr;
  REQUIRE(table.library_get_kernel(&kernel, library, kEntry) == driver::kSuccess);
  REQUIRE(table.kernel_get_function(&function, kernel) == driver::kSuccess);

  Recording recording{device.name, {}};
  Model model;
  for (const Case& c : all_cases()) {
    if (c.needs_sm90 && device.arch != Arch::sm_90a) {
      recording.outputs.emplace_back();
      continue;
    }
    const std::vector<std::uint32_t> words = inputs_of(c);
    std::vector<std::uint32_t> out = blank_outputs();
    driver::DeviceBuffer in_buffer = test::gpu_must(driver::DeviceBuffer::allocate(table, static_cast<i64>(words.size() * 4)));
    driver::DeviceBuffer out_buffer = test::gpu_must(driver::DeviceBuffer::allocate(table, static_cast<i64>(out.size() * 4)));
    test::gpu_must(in_buffer.upload(words.data(), static_cast<i64>(words.size() * 4)));
    test::gpu_must(out_buffer.upload(out.data(), static_cast<i64>(out.size() * 4)));
    Args args{in_buffer.data(), out_buffer.data(), c.which};
    void* pointers[] = {&args};
    driver::LaunchConfig config;
    config.block_x = kThreads;
    config.shared_bytes = static_cast<unsigned>(kSharedBytes);
    INFO(c.name);
    REQUIRE(table.launch_kernel_ex(&config, function, pointers, nullptr) == driver::kSuccess);
    REQUIRE(table.ctx_synchronize() == driver::kSuccess);
    test::gpu_must(out_buffer.download(out.data(), static_cast<i64>(out.size() * 4)));
    CHECK(difference(c, out, model.run(c)) == "");
    recording.outputs.push_back(out);
  }
  table.library_unload(library);
  if (const char* path = std::getenv("W4MOE_RECORD_CONFORMANCE")) write_recording(path, recording);
}

#endif
