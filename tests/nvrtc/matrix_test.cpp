// Every kernel of the matrix compiles without a word from the compiler, fits its target and its budget, and exports what its
// variant says. Compile times are printed, not asserted: they are the machine's.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "generator/compile/kernel_check.hpp"
#include "tests/nvrtc/budgets.hpp"
#include "tests/nvrtc/nvrtc_support.hpp"
#include "tests/nvrtc/planned_kernels.hpp"

using namespace w4moe;
using test::Budget;
using test::Budgets;
using test::NamedKernel;

namespace {

const int kThreads = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
/// Registers are handed out in steps of eight per thread; a change of one step is not news.
constexpr int kRegisterSlack = 8;

std::vector<std::optional<Result<CompiledKernel>>> compile_all(const std::vector<NamedKernel>& kernels) {
  std::vector<std::optional<Result<CompiledKernel>>> results(kernels.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < kernels.size(); i = next++)
      results[i].emplace(test::nvrtc().compile(compile_request(kernels[i].variant)));
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return results;
}

/// The log without ptxas's warnings of spills, which are counted instead.
std::string without_spills(const std::string& log) {
  std::string rest;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (line.find("Registers are spilled to local memory") == std::string::npos) rest += line + '\n';
  return rest;
}

void check_one(const NamedKernel& kernel, const CompiledKernel& compiled, Budgets& budgets) {
  const Variant& v = kernel.variant;
  INFO(kernel.name << ": " << render(v).description);
  CHECK(without_spills(compiled.log) == "");
  const Status fits = check_kernel(compiled.facts, v);
  INFO((fits ? "" : fits.error().message));
  CHECK(fits);

  const CubinKernel& k = compiled.facts.kernels.at(0);
  CHECK(k.spill_source == SpillSource::log);
  CHECK(k.max_threads == v.threads());
  CHECK(v.shared_bytes() + k.static_shared_bytes <= kernel.device.shared_optin_bytes);  // R12
  // As many CTAs as the launch bound promises have their registers, which are handed out in eights.
  CHECK((k.registers + 7) / 8 * 8 * v.threads() * v.min_ctas_per_sm() <= kernel.device.registers_per_sm);

  if (budgets.recording()) {
    budgets.record(compiled.nvrtc_version, kernel.name, Budget{k.registers, k.spill_bytes});
    return;
  }
  const Budget* budget = budgets.find(kernel.name);
  INFO("budgets: run this program with W4MOE_UPDATE_GOLDEN=1 and read the difference");
  CHECK(budget != nullptr);
  if (budget == nullptr) return;
  if (compiled.nvrtc_version == budgets.nvrtc()) {
    CHECK(k.registers <= budget->registers + kRegisterSlack);
    CHECK(k.spill_bytes <= budget->spill_bytes);
  } else if (budget->spill_bytes == 0) {
    CHECK(k.spill_bytes == 0);
  }
}

/// Compiles and checks the part'th of `parts` parts of a target's kernels, so that no test runs for minutes.
void check_matrix(Arch arch, std::size_t part = 0, std::size_t parts = 1) {
  std::vector<NamedKernel> kernels;
  const std::vector<NamedKernel> all = test::matrix_of(arch);
  for (std::size_t i = part; i < all.size(); i += parts) kernels.push_back(all[i]);
  Budgets budgets;
  const auto begin = std::chrono::steady_clock::now();
  const auto results = compile_all(kernels);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  double total_ms = 0;
  double longest_ms = 0;
  std::string longest;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Result<CompiledKernel>& result = *results[i];
    INFO(kernels[i].name << "\n" << (result ? "" : result.error().message));
    CHECK(result);
    if (!result) continue;
    check_one(kernels[i], *result, budgets);
    total_ms += result->compile_ms;
    if (result->compile_ms > longest_ms) {
      longest_ms = result->compile_ms;
      longest = kernels[i].name;
    }
  }
  budgets.save();
  std::printf("%s %zu/%zu: %zu kernels in %.1f s on %d threads, %.0f ms each on average, longest %.0f ms (%s)\n",
              std::string(to_string(arch)).c_str(), part + 1, parts, kernels.size(), seconds, kThreads,
              total_ms / static_cast<double>(kernels.size()), longest_ms, longest.c_str());
}

}  // namespace

#define W4MOE_MATRIX_CASE(title, ...)                           \
  TEST_CASE("C33: every kernel compiles cleanly for " title) {  \
    W4MOE_NEEDS_NVRTC();                                        \
    check_matrix(__VA_ARGS__);                                  \
  }                                                             \
  static_assert(true)

W4MOE_MATRIX_CASE("sm_80", Arch::sm_80);
W4MOE_MATRIX_CASE("sm_86", Arch::sm_86);
W4MOE_MATRIX_CASE("sm_89", Arch::sm_89);
W4MOE_MATRIX_CASE("sm_90a, part 1", Arch::sm_90a, 0, 6);
W4MOE_MATRIX_CASE("sm_90a, part 2", Arch::sm_90a, 1, 6);
W4MOE_MATRIX_CASE("sm_90a, part 3", Arch::sm_90a, 2, 6);
W4MOE_MATRIX_CASE("sm_90a, part 4", Arch::sm_90a, 3, 6);
W4MOE_MATRIX_CASE("sm_90a, part 5", Arch::sm_90a, 4, 6);
W4MOE_MATRIX_CASE("sm_90a, part 6", Arch::sm_90a, 5, 6);
W4MOE_MATRIX_CASE("sm_100a", Arch::sm_100a);
W4MOE_MATRIX_CASE("sm_103a", Arch::sm_103a);
W4MOE_MATRIX_CASE("sm_120a", Arch::sm_120a);
W4MOE_MATRIX_CASE("sm_121a", Arch::sm_121a);

TEST_CASE("the budgets name the kernels of the matrix, all of them and no others") {
  std::set<std::string> planned;
  for (const Arch arch : known_archs())
    for (const NamedKernel& kernel : test::matrix_of(arch)) planned.insert(kernel.name);
  std::set<std::string> recorded;
  const Budgets budgets;
  for (const auto& [name, budget] : budgets.all()) recorded.insert(name);
  CHECK(recorded == planned);
}

TEST_CASE("the matrix holds every kernel kind, format, dtype, activation and block width that a plan can have") {
  std::set<std::string> seen;
  std::set<int> widths;
  for (const NamedKernel& kernel : test::matrix_of(Arch::sm_90a)) {
    const Variant& v = kernel.variant;
    seen.insert(std::string(kind_name(v.kind)));
    if (v.kind != KernelKind::fc1) continue;
    seen.insert(std::string(to_string(v.activation)));
    seen.insert(std::string(to_string(v.dtype)) + (v.format.is_int4() ? " int4" : v.format.is_nvfp4() ? " nvfp4" : v.format.wide_exponent ? " wide" : " mxfp4"));
    if (!v.is_wgmma()) widths.insert(v.tile.block_rows);
  }
  for (const char* kind : {"route", "route_count", "route_place", "fc1", "fc2", "combine", "pack", "scan"}) CHECK(seen.count(kind) == 1);
  for (int i = 0; i < kActivationCount; ++i) CHECK(seen.count(std::string(to_string(static_cast<Activation>(i)))) == 1);
  for (const char* dtype : {"bf16", "f16"})
    for (const char* format : {" int4", " nvfp4", " wide", " mxfp4"}) CHECK(seen.count(std::string(dtype) + format) == 1);
  CHECK(widths == std::set<int>{8, 16, 32, 64});
  std::set<int> wgmma_widths;
  for (const NamedKernel& kernel : test::matrix_of(Arch::sm_90a)) {
    if (kernel.variant.is_wgmma()) wgmma_widths.insert(kernel.variant.block_rows());
  }
  CHECK(wgmma_widths == std::set<int>{16, 24, 48, 96, 128, 144});
}
