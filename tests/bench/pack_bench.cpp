// Packing speed: bytes of the checkpoint a second, on the CPU from memory, from a file that is not cached to a file, and on a GPU.
// Prints one JSON document (docs/benchmarks/pack.md).
//
//   w4moe_pack_bench [--quick] [--gpu] [--folder FOLDER] [--threads N]
//
// --gpu    Engine::prepare on cuda:0 instead, from host and from device tensors; needs NVRTC or a cache with the packing kernels
// --folder where a checkpoint of 4 GB at most is written and read; default: no files
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/manifest/presets.hpp"
#include "runtime/driver/device_memory.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/reference/synthetic.hpp"
#include "runtime/weights/expert_slice.hpp"
#include "w4moe/checkpoint.hpp"
#include "w4moe/engine.hpp"

using namespace w4moe;

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double kGiga = 1e9;

struct Flags {
  bool quick = false;
  bool gpu = false;
  std::string folder;
  int threads = 0;
};

template <class T>
T must(Result<T> result, const char* what) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}: {}\n", what, result.error().message);
  std::exit(1);
}
void must(const Status& status, const char* what) {
  if (status) return;
  fmt::print(stderr, "{}: {}\n", what, status.error().message);
  std::exit(1);
}

/// Processor time of all threads: what others do on the machine does not count.
double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Timing {
  double wall = 0, processor = 0;
};

template <class Body>
Timing timed(const Body& body) {
  const double processor = processor_seconds();
  const auto start = Clock::now();
  body();
  return {std::chrono::duration<double>(Clock::now() - start).count(), processor_seconds() - processor};
}

i64 source_bytes(const Problem& problem) {
  const WeightLayout layout = weight_layout(problem);
  return layout.fc1_checkpoint_bytes() + layout.fc2_checkpoint_bytes();
}

Json rate(const Problem& problem, const Timing& t) {
  const double gigabytes = static_cast<double>(source_bytes(problem)) / kGiga;
  return {{"seconds", t.wall}, {"gb_per_s", gigabytes / t.wall}, {"gb_per_processor_s", t.processor > 0 ? Json(gigabytes / t.processor) : Json()}};
}

struct Destination {
  explicit Destination(const Problem& problem) : storage(static_cast<std::size_t>(must(prepared_weight_bytes(problem), "bytes")) + kAlign) {
    std::memset(storage.data(), 0, storage.size());  // pages are there before the clock runs
  }
  std::span<std::byte> bytes() {
    const auto skip = (kAlign - reinterpret_cast<std::uintptr_t>(storage.data()) % kAlign) % kAlign;
    return std::span(storage).subspan(skip, storage.size() - kAlign);
  }
  static constexpr std::size_t kAlign = 256;
  std::vector<std::byte> storage;
};

SyntheticLayer make(const Problem& problem) {
  SyntheticOptions options;
  options.gate_up_order = GateUpOrder::separate;
  options.per_expert_tensors = true;
  options.code_words = problem.format.is_int4();
  options.bias_type = SourceType::f32;
  return make_layer(problem, options);
}

/// The layer as a checkpoint file, under the names of its format's per-expert family.
void write_checkpoint(const std::string& path, const Problem& problem, const SourceWeights& source) {
  const QuantFormat& f = problem.format;
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& name, const SourceTensor& t, const char* dtype) {
    i64 bytes = source_type_bytes(t.type);
    for (const i64 dim : t.shape) bytes *= dim;
    tensors.push_back({name, dtype, t.shape, static_cast<const std::byte*>(t.data), bytes});
  };
  const std::tuple<const char*, const SourceMatrix*, const std::vector<float>*> parts[] = {
      {"gate_proj", &source.gate, &source.gate_global}, {"up_proj", &source.up, &source.up_global}, {"down_proj", &source.down, &source.down_global}};
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    for (const auto& [part, matrix, globals] : parts) {
      const auto at = static_cast<std::size_t>(expert);
      const std::string base = fmt::format("model.layers.0.mlp.experts.{}.{}.", expert, part);
      add(base + (f.is_int4() ? "weight_packed" : "weight"), matrix->codes[at], f.is_int4() ? "I32" : "U8");
      add(base + (f.is_mxfp4() ? "scale" : "weight_scale"), matrix->scales[at], f.is_mxfp4() ? "U8" : f.is_nvfp4() ? "F8_E4M3" : f.scale == ScaleType::f16 ? "F16" : "BF16");
      if (!globals->empty()) tensors.push_back({base + "weight_scale_2", "F32", {}, reinterpret_cast<const std::byte*>(&(*globals)[at]), sizeof(float)});
      if (problem.has_bias) add(base + "bias", matrix->bias[at], "F32");
    }
  }
  must(write_safetensors(path, tensors), "writing the checkpoint");
}

/// Nothing of the file stays in the page cache, as far as the system does what it is told.
void forget(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) return;
  ::fsync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

/// Reading the file past the page cache, in order, block by block.
double direct_read_gb_per_s(const std::string& path) {
  constexpr std::size_t kBlock = 8 << 20;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT);
  void* block = nullptr;
  if (fd < 0 || ::posix_memalign(&block, 4096, kBlock) != 0) return 0;
  double bytes = 0;
  const Timing t = timed([&] {
    for (ssize_t n = 0; (n = ::read(fd, block, kBlock)) > 0;) bytes += static_cast<double>(n);
  });
  std::free(block);
  ::close(fd);
  return bytes / kGiga / t.wall;
}

Json file_row(const Flags& flags, const Problem& problem, const SyntheticLayer& layer) {
  const std::string in = flags.folder + "/pack_bench_in.safetensors";
  const std::string out = flags.folder + "/pack_bench_out.safetensors";
  write_checkpoint(in, problem, layer.source);
  forget(in);
  Json row;
  row["direct_read_gb_per_s"] = direct_read_gb_per_s(in);
  for (const bool cold : {true, false}) {
    if (cold) forget(in);
    const Checkpoint checkpoint = must(Checkpoint::open(in), "opening the checkpoint");
    const CheckpointLayer read = must(checkpoint.layer("0"), "reading the layer");
    PackOptions options;
    options.threads = flags.threads;
    row[cold ? "file_to_file_cold" : "file_to_file_cached"] = rate(problem, timed([&] { must(write_packed(out, std::span(&read, 1), options), "packing"); }));
    if (!cold) row["verify"] = rate(problem, timed([&] {
      must(verify_prepared(read.problem, read.source, must(PackedFile::open(out), "opening").layers().front().bytes, flags.threads), "verifying");
    }));
  }
  std::filesystem::remove(in);
  std::filesystem::remove(out);
  return row;
}

Json cpu_row(const Flags& flags, const Problem& problem) {
  const SyntheticLayer layer = make(problem);
  Destination dest(problem);
  Json row;
  for (const int threads : {1, flags.threads}) {
    PackOptions options;
    options.threads = threads;
    row[threads == 1 ? "memory_one_thread" : "memory"] = rate(problem, timed([&] { must(pack_on_cpu(problem, layer.source, dest.bytes(), options), "packing"); }));
  }
  if (!flags.folder.empty()) row.update(file_row(flags, problem, layer));
  return row;
}

Json gpu_row(const driver::DriverTable& table, Engine& engine, const Problem& problem) {
  SyntheticLayer layer = make(problem);
  const Plan plan = must(make_plan(problem, must(engine.device(), "device")), "plan");
  driver::OwnedStream stream = must(driver::OwnedStream::create(table), "stream");
  const driver::DeviceBuffer dest = must(driver::DeviceBuffer::allocate(table, plan.prepared_weight_bytes()), "weights");
  Json row;
  std::vector<driver::DeviceBuffer> uploaded;
  for (const bool on_device : {false, true}) {
    SourceWeights source = layer.source;
    if (on_device) {
      source.on_device = true;
      const auto to_device = [&](SourceTensor& tensor) {
        const i64 bytes = covered_bytes(tensor);
        uploaded.push_back(must(driver::DeviceBuffer::allocate(table, bytes), "source"));
        must(uploaded.back().upload(tensor.data, bytes), "upload");
        tensor.data = uploaded.back().data();
      };
      for_each_weight_tensor(source, to_device);
      for (SourceMatrix* matrix : {&source.gate_up, &source.gate, &source.up, &source.down}) {
        for (SourceTensor& bias : matrix->bias) to_device(bias);
      }
    }
    const i64 workspace_bytes = must(prepare_workspace_bytes(problem, source), "workspace");
    const driver::DeviceBuffer workspace = must(driver::DeviceBuffer::allocate(table, workspace_bytes), "workspace");
    const auto prepare = [&] {
      must(engine.prepare(plan, source, dest.data(), dest.bytes(), workspace.data(), workspace.bytes(), stream.handle()), "prepare");
    };
    prepare();  // kernels are built and loaded
    row[on_device ? "from_device" : "from_host"] = rate(problem, timed(prepare));
  }
  return row;
}

Flags flags_of(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") flags.quick = true;
    if (word == "--gpu") flags.gpu = true;
    if (word == "--folder" && i + 1 < argc) flags.folder = argv[++i];
    if (word == "--threads" && i + 1 < argc) flags.threads = std::atoi(argv[++i]);
  }
  return flags;
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags = flags_of(argc, argv);
  Json document = {{"schema", "w4moe.pack_bench/1"}, {"processors", static_cast<i64>(::sysconf(_SC_NPROCESSORS_ONLN))}, {"threads", flags.threads}};
  const driver::DriverTable* table = nullptr;
  std::optional<driver::PrimaryContext> context;
  std::optional<Engine> engine;
  if (flags.gpu) {
    table = must(driver::system_driver(), "driver");
    context.emplace(must(driver::PrimaryContext::open(*table, 0), "context"));
    engine.emplace(must(Engine::create(), "engine"));
    document["device"] = must(engine->device(), "device").name;
  }
  for (const auto& [name, experts] : {std::pair("gpt-oss-120b", i64{32}), std::pair("qwen3-235b-a22b", i64{32}), std::pair("kimi-k2", i64{16}), std::pair("mixtral-8x7b", i64{4})}) {
    Problem problem = must(preset(name, 1, 1, 64), "preset");
    problem.shape.experts = flags.quick ? 2 : flags.gpu ? std::min<i64>(problem.shape.experts, 64) : experts;
    problem.shape.topk = std::min(problem.shape.topk, problem.shape.experts);
    if (flags.quick) problem.shape.hidden = 256, problem.shape.intermediate = 128;
    Json row = {{"model", name}, {"format", to_string(problem.format)}, {"experts", problem.shape.experts}, {"source_bytes", source_bytes(problem)},
                {"packed_bytes", must(prepared_weight_bytes(problem), "bytes")}};
    row.update(flags.gpu ? gpu_row(*table, *engine, problem) : cpu_row(flags, problem));
    document["rows"].push_back(row);
    if (!flags.quick) fmt::print(stderr, "{}\n", row.dump());
  }
  fmt::print("{}\n", document.dump(2));
  return 0;
}
