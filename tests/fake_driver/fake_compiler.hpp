// A compiler that makes cubins without code: right facts for the variants it knows, failures and delays on demand.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "generator/compile/compiler.hpp"
#include "generator/compile/kernel_check.hpp"
#include "tests/support/cubin_builder.hpp"
#include "w4moe/plan.hpp"

namespace w4moe::test {

/// What the cubin of a variant looks like from outside.
inline FakeCubin fake_cubin(const Variant& variant) {
  FakeCubin cubin;
  const int sm = static_cast<int>(variant.arch) / 10;
  cubin.sm = static_cast<std::uint32_t>(sm);
  cubin.arch_specific = sm >= 90;
  cubin.kernels[0].name = render(variant).entry_name;
  cubin.kernels[0].max_threads = static_cast<std::uint32_t>(variant.threads());
  for (const CubinFact& fact : expected_facts(variant)) cubin.facts.emplace_back(fact.name, fact.value);
  return cubin;
}

class FakeCompiler final : public Compiler {
 public:
  explicit FakeCompiler(std::string build = "13.0.88") : build_(std::move(build)) {}

  /// Makes the kernels of a plan known.
  void add(const Plan& plan) {
    for (const PlannedKernel& kernel : plan.kernels) add(kernel.variant);
  }
  void add(const Variant& variant) {
    const std::lock_guard lock(mutex_);
    variants_[render(variant).variant_text] = variant;
  }

  w4moe::Result<CompiledKernel> compile(const CompileRequest& request) override {
    const int now = ++running_;
    int most = most_running_.load();
    while (now > most && !most_running_.compare_exchange_weak(most, now)) {
    }
    ++compiles;
    std::this_thread::sleep_for(delay);
    --running_;
    if (!fail_with.empty()) return Error{ErrorCode::compile_failed, fail_with};
    const std::lock_guard lock(mutex_);
    const auto it = variants_.find(request.source.variant_text);
    if (it == variants_.end()) return Error{ErrorCode::internal, "the fake compiler does not know this variant"};
    FakeCubin cubin = fake_cubin(it->second);
    if (change) change(cubin);
    CompiledKernel compiled;
    compiled.cubin = cubin.bytes();
    w4moe::Result<CubinInfo> info = read_cubin(compiled.cubin);
    if (!info) return info.error();
    compiled.facts = *info;
    compiled.compile_ms = 1;
    compiled.nvrtc_version = build_;
    return compiled;
  }
  w4moe::Result<std::string> build() override {
    if (build_.empty()) return Error{ErrorCode::toolchain_missing, "no NVRTC here"};
    return build_;
  }

  int most_running() const { return most_running_; }

  std::atomic<int> compiles{0};
  std::chrono::milliseconds delay{0};
  std::string fail_with;
  std::function<void(FakeCubin&)> change;  ///< spoils what is made

 private:
  const std::string build_;
  std::mutex mutex_;
  std::map<std::string, Variant> variants_;
  std::atomic<int> running_{0};
  std::atomic<int> most_running_{0};
};

}  // namespace w4moe::test
