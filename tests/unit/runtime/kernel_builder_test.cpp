#include "runtime/build/kernel_builder.hpp"

#include <filesystem>
#include <fstream>

#include "generator/manifest/manifest.hpp"
#include "runtime/build/parallel.hpp"
#include "runtime/build/report.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/runtime/small_plan.hpp"

using namespace w4moe;
using namespace w4moe::test;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A builder on a cache directory (or in memory only) with its own compiler.
struct Workshop {
  explicit Workshop(const std::string& dir = {}, std::shared_ptr<FakeCompiler> use = std::make_shared<FakeCompiler>(), Config config = {})
      : compiler(std::move(use)) {
    config.cache.disk.root = dir;
    config.jobs = std::max(config.jobs, 2);
    builder.emplace(std::move(config), Logger([this](LogLevel level, const std::string& m) { (level == LogLevel::warning ? warnings : talk).push_back(m); }, {}), compiler);
  }
  w4moe::Result<std::vector<BuiltKernel>> build(const Plan& plan, JitMode jit = JitMode::on, const BuildOptions& options = {}) {
    compiler->add(plan);
    return builder->build(kernel_wishes({&plan, 1}), jit, options);
  }

  std::vector<std::string> warnings, talk;
  std::shared_ptr<FakeCompiler> compiler;
  std::optional<KernelBuilder> builder;
};

}  // namespace

TEST_CASE("builder: a cold build compiles each kernel once, a second process hits") {
  const TempDir dir;
  const Plan plan = small_plan();
  const int count = static_cast<int>(plan.kernels.size());
  {
    Workshop cold((dir / "cache").string());
    const auto kernels = must(cold.build(plan));
    const BuildReport report = build_report(kernels, 0);
    CHECK(report.compiled == count);
    CHECK(report.hits == 0);
    for (const KernelReport& k : report.kernels) {
      CHECK(k.key.size() == 64);
      CHECK(k.arch == "sm_90a");
      CHECK(k.builder == "13.0.88");
      CHECK(k.registers > 0);
      CHECK(k.compile_ms > 0);
      CHECK_FALSE(k.name.empty());
    }
    CHECK(build_report(must(cold.build(plan)), 0).hits == count);
    CHECK(cold.compiler->compiles == count);
  }
  Workshop warm((dir / "cache").string());
  CHECK(build_report(must(warm.build(plan)), 0).hits == count);
  CHECK(warm.compiler->compiles == 0);
  CHECK(warm.warnings.empty());
  CHECK(warm.talk.empty());  // O01: nothing to say about a success
}

TEST_CASE("O03: plans that share kernels build each once, and every wish finds its place") {
  Workshop shop;
  Problem longer = small_problem();
  longer.shape.max_tokens = 16384;
  Problem wider = small_problem();
  wider.shape.experts = 32;
  const std::vector<Plan> plans = {small_plan(), plan_of(longer), plan_of(wider), small_plan()};
  for (const Plan& plan : plans) shop.compiler->add(plan);
  const std::vector<KernelWish> wishes = kernel_wishes(plans);
  std::vector<std::size_t> index_of;
  const auto kernels = must(shop.builder->build(wishes, JitMode::on, {}, &index_of));
  CHECK(kernels.size() < wishes.size());
  CHECK(shop.compiler->compiles == static_cast<int>(kernels.size()));
  REQUIRE(index_of.size() == wishes.size());
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    CHECK(kernels[index_of[i]].report.key == cache::Key::of_text(kernel_key_text(compile_request(wishes[i].variant))).hex());
  }
}

TEST_CASE("C13: the key holds what changes the binary") {
  Variant v = small_plan().kernels[0].variant;
  const auto key = [](const Variant& variant) { return cache::Key::of_text(kernel_key_text(compile_request(variant))).hex(); };
  const std::string base = key(v);
  CHECK(key(v) == base);
  for (const PlannedKernel& kernel : small_plan().kernels) {
    Variant other = kernel.variant;
    other.arch = Arch::sm_80;
    CHECK(key(other) != key(kernel.variant));
    if (kernel.variant.kind != KernelKind::fc1) continue;
    for (const auto change : {+[](Variant& x) { x.hidden += 64; }, +[](Variant& x) { x.format = kNvfp4; }, +[](Variant& x) { x.dtype = DType::f16; },
                              +[](Variant& x) { x.activation = Activation::geglu_erf; }, +[](Variant& x) { x.tile.stages += 1; }}) {
      Variant changed = kernel.variant;
      change(changed);
      CHECK(key(changed) != key(kernel.variant));
    }
  }
  CompileRequest request = compile_request(v);
  request.options.line_info = true;
  CHECK(cache::Key::of_text(kernel_key_text(request)).hex() != base);
  CHECK(cache::parse_key_text(kernel_key_text(request)).has_value());
}

TEST_CASE("C22: with JIT off a miss names the key's inputs, the nearest entry with what differs, and the manifest entry") {
  const TempDir dir;
  Workshop shop((dir / "cache").string());
  must(shop.build(small_plan()));
  Problem other = small_problem();
  other.shape.hidden = 512;
  const Plan plan = plan_of(other);
  const std::string message = error_of(shop.build(plan, JitMode::off), ErrorCode::not_prepared);
  CHECK(shop.compiler->compiles == static_cast<int>(small_plan().kernels.size()));
  CHECK(has(message, "W4MOE_JIT=off"));
  CHECK(has(message, "arch = sm_90a"));
  CHECK(has(message, "bundle = "));
  CHECK(has(message, "differs in"));
  CHECK(has(message, "variant: "));
  CHECK(has(message, "512"));
  // The manifest entry in the message makes the very same kernels.
  const std::size_t begin = message.find("{\"name\"");
  REQUIRE(begin != std::string::npos);
  const Manifest manifest = must(parse_manifest("{\"schema_version\": 1, \"problems\": [" + message.substr(begin) + "]}", "message"));
  const Plan again = plan_of(manifest.entries.at(0).problem, manifest.entries.at(0).options);
  REQUIRE(again.kernels.size() == plan.kernels.size());
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) CHECK(again.kernels[i].variant == plan.kernels[i].variant);
  CHECK(has(message, "w4moe build --arch sm_90a"));
  Workshop empty;
  CHECK(has(error_of(empty.build(plan, JitMode::off), ErrorCode::not_prepared), "the cache is empty"));
  // What was built ahead of time is served.
  CHECK(build_report(must(shop.build(small_plan(), JitMode::off)), 0).failed == 0);
}

TEST_CASE("C21: without a compiler, what the cache holds is served, from any compiler build, and a miss is said to be one") {
  const TempDir dir;
  const Plan plan = small_plan();
  must(Workshop((dir / "cache").string()).build(plan));
  Workshop bare((dir / "cache").string(), std::make_shared<FakeCompiler>(""));
  CHECK(build_report(must(bare.build(plan)), 0).hits == static_cast<int>(plan.kernels.size()));
  Problem other = small_problem();
  other.shape.hidden = 512;
  const std::string message = error_of(bare.build(plan_of(other)), ErrorCode::toolchain_missing);
  CHECK(has(message, "not in the cache"));
  CHECK(has(message, "no NVRTC here"));
}

TEST_CASE("C14: another build of the compiler compiles anew beside the old entries") {
  const TempDir dir;
  const Plan plan = small_plan();
  must(Workshop((dir / "cache").string()).build(plan));
  Workshop newer((dir / "cache").string(), std::make_shared<FakeCompiler>("13.1.2"));
  CHECK(build_report(must(newer.build(plan)), 0).compiled == static_cast<int>(plan.kernels.size()));
  Workshop older((dir / "cache").string());
  CHECK(build_report(must(older.build(plan)), 0).hits == static_cast<int>(plan.kernels.size()));
}

TEST_CASE("C33: a compile error is returned whole, wakes all who wait, and nothing is stored") {
  const TempDir dir;
  const Plan plan = small_plan();
  Workshop shop((dir / "cache").string());
  shop.compiler->fail_with = "fc1.cuh(12): error: expected a ';'";
  shop.compiler->delay = std::chrono::milliseconds(5);
  shop.compiler->add(plan);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto result = shop.builder->build(kernel_wishes({&plan, 1}), JitMode::on, {});
      if (!result && result.error().code == ErrorCode::compile_failed && has(result.error().message, "expected a ';'")) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 8);
  CHECK(shop.builder->cache().store().list().empty());
  shop.compiler->fail_with.clear();
  must(shop.build(plan));
}

TEST_CASE("R09: many threads want the same kernels at once: one compile each") {
  const Plan plan = small_plan();
  Workshop shop;
  shop.compiler->add(plan);
  shop.compiler->delay = std::chrono::milliseconds(5);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      if (!shop.builder->build(kernel_wishes({&plan, 1}), JitMode::on, {})) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(shop.compiler->compiles == static_cast<int>(plan.kernels.size()));
}

TEST_CASE("C17: an entry that is whole but is another kernel is not used: compiled anew, and stored right") {
  const TempDir dir;
  const Plan plan = small_plan();
  {
    Workshop planter((dir / "cache").string());
    planter.compiler->change = [](FakeCubin& cubin) { cubin.sm = 120; };
    // The builder itself refuses to store such a thing, so that it is planted by hand.
    CHECK_FALSE(planter.build(plan).ok());
    for (const PlannedKernel& kernel : plan.kernels) {
      FakeCubin cubin = fake_cubin(kernel.variant);
      cubin.sm = 120;
      const auto bytes = cubin.bytes();
      planter.builder->cache().store().put(
          cache::make_entry(bytes.data(), bytes.size(), kernel_key_text(compile_request(kernel.variant)), "13.0.88"));
    }
  }
  Workshop shop((dir / "cache").string());
  const BuildReport report = build_report(must(shop.build(plan)), 0);
  CHECK(report.compiled == static_cast<int>(plan.kernels.size()));
  CHECK_FALSE(shop.warnings.empty());
  Workshop again((dir / "cache").string());
  CHECK(build_report(must(again.build(plan)), 0).hits == static_cast<int>(plan.kernels.size()));
}

TEST_CASE("C28: a wrong entry in a read-only directory does not shadow a right one") {
  const TempDir dir;
  const Plan plan = small_plan();
  const std::string shipped = (dir / "shipped").string();
  {
    Workshop planter(shipped);
    for (const PlannedKernel& kernel : plan.kernels) {
      FakeCubin cubin = fake_cubin(kernel.variant);
      cubin.sm = 100;
      const auto bytes = cubin.bytes();
      planter.builder->cache().store().put(
          cache::make_entry(bytes.data(), bytes.size(), kernel_key_text(compile_request(kernel.variant)), "13.0.88"));
    }
  }
  Config config;
  config.cache.read_only_dirs = {shipped};
  Workshop shop({}, std::make_shared<FakeCompiler>(), config);
  for (int i = 0; i < 2; ++i) {
    for (const BuiltKernel& kernel : must(shop.build(plan))) CHECK(kernel.report.arch == "sm_90a");
  }
  CHECK(shop.compiler->compiles == static_cast<int>(plan.kernels.size()));
}

TEST_CASE("builder: compiles run side by side, at most as many as asked for") {
  Problem p = small_problem();
  p.shape.max_tokens = 16384;
  const Plan plan = plan_of(p);
  REQUIRE(plan.kernels.size() >= 6);
  for (const int jobs : {2, 3}) {
    Config config;
    config.jobs = jobs;
    Workshop shop({}, std::make_shared<FakeCompiler>(), config);
    shop.compiler->delay = std::chrono::milliseconds(20);
    must(shop.build(plan));
    CHECK(shop.compiler->most_running() == jobs);
  }
}

TEST_CASE("builder: progress counts up to the total; keep_going reports failures and builds the others") {
  const Plan plan = small_plan();
  Workshop shop;
  int calls = 0;
  BuildOptions options;
  options.progress = [&](const KernelReport& kernel, int done, int total) {
    CHECK(done == ++calls);
    CHECK(total == static_cast<int>(plan.kernels.size()));
    CHECK_FALSE(kernel.name.empty());
  };
  must(shop.build(plan, JitMode::on, options));
  CHECK(calls == static_cast<int>(plan.kernels.size()));

  Workshop partly;
  partly.compiler->change = [](FakeCubin& cubin) {
    if (cubin.kernels[0].name == "w4moe_fc2") cubin.kernels[0].name = "something_else";
  };
  BuildOptions keep;
  keep.keep_going = true;
  const BuildReport report = build_report(must(partly.build(plan, JitMode::on, keep)), 0);
  int fc2 = 0;
  for (const PlannedKernel& kernel : plan.kernels) fc2 += kernel.variant.kind == KernelKind::fc2 ? 1 : 0;
  CHECK(report.failed == fc2);
  CHECK(report.compiled == static_cast<int>(plan.kernels.size()) - fc2);
}

TEST_CASE("builder: a cancelled build compiles nothing more") {
  Workshop shop;
  BuildOptions options;
  int asked = 0;
  options.cancelled = [&] { return ++asked > 1; };
  Config config;
  config.jobs = 1;
  CHECK(has(error_of(shop.build(small_plan(), JitMode::on, options), ErrorCode::not_prepared), "cancelled"));
  CHECK(shop.compiler->compiles <= 1);
}

TEST_CASE("builder: W4MOE_DUMP_DIR keeps the sources, the log and the cubin of every compile") {
  const TempDir dir;
  Config config;
  config.dump_dir = (dir / "dump").string();
  Workshop shop({}, std::make_shared<FakeCompiler>(), config);
  must(shop.build(small_plan()));
  std::size_t folders = 0;
  for (const auto& folder : std::filesystem::directory_iterator(dir / "dump")) {
    ++folders;
    for (const char* file : {"w4moe_variant.h", "log.txt", "kernel.cubin"}) CHECK(std::filesystem::exists(folder.path() / file));
  }
  CHECK(folders == small_plan().kernels.size());
}

TEST_CASE("C05: an unwritable cache directory costs a warning and no more") {
  const Plan plan = small_plan();
  Workshop shop("/proc/w4moe-cannot-be-made");
  CHECK(build_report(must(shop.build(plan)), 0).compiled == static_cast<int>(plan.kernels.size()));
  CHECK(shop.warnings.size() == 1);
  CHECK(build_report(must(shop.build(plan)), 0).hits == static_cast<int>(plan.kernels.size()));  // in memory
}

TEST_CASE("builder: look_up tells hits without compiling or writing") {
  const TempDir dir;
  const Plan plan = small_plan();
  Workshop shop((dir / "cache").string());
  for (const BuiltKernel& kernel : shop.builder->look_up(kernel_wishes({&plan, 1}))) {
    CHECK_FALSE(kernel.report.hit);
    CHECK(kernel.report.key.size() == 64);
  }
  CHECK(shop.compiler->compiles == 0);
  CHECK_FALSE(std::filesystem::exists(dir / "cache"));
  must(shop.build(plan));
  for (const BuiltKernel& kernel : shop.builder->look_up(kernel_wishes({&plan, 1}))) CHECK(kernel.report.hit);
}

TEST_CASE("for_each_index: every index once, stops when told to, and does without threads it cannot get") {
  std::vector<int> seen(100, 0);
  std::mutex mutex;
  for_each_index(100, 4, [&](int i) {
    const std::lock_guard lock(mutex);
    ++seen[static_cast<std::size_t>(i)];
    return true;
  });
  for (const int n : seen) CHECK(n == 1);
  int calls = 0;
  for_each_index(100, 1, [&](int) { return ++calls < 3; });
  CHECK(calls == 3);
  for_each_index(0, 4, [&](int) { return ++calls > 0; });
  CHECK(calls == 3);
}
