// Variant -> kernel binary: key, cache, compiler. The one place where the key of a kernel is derived.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kernel_cache.hpp"
#include "generator/compile/compiler.hpp"
#include "runtime/build/kernel_wish.hpp"
#include "runtime/config.hpp"
#include "runtime/log.hpp"

namespace w4moe {

/// A kernel that is there.
struct BuiltKernel {
  KernelReport report;
  std::shared_ptr<const cache::Bytes> cubin;  ///< null where report.error is set
};

/// What the key of a kernel is made of: cache::Key::of_text(key_text) is its key.
std::string kernel_key_text(const CompileRequest& request);

/// Thread-safe. Opens nothing before it is asked for a kernel; NVRTC only where it is needed.
class KernelBuilder {
 public:
  /// `compiler` null: NVRTC, as the configuration finds it.
  KernelBuilder(Config config, Logger logger, std::shared_ptr<Compiler> compiler = nullptr);

  /// The kernels, each distinct one once, in the order of the wishes; compiles run in parallel, at most config.jobs at a time.
  /// `index_of[i]` (if given) is the place of wish i in the result. The first error ends it, unless options.keep_going.
  Result<std::vector<BuiltKernel>> build(std::span<const KernelWish> wishes, JitMode jit, const BuildOptions& options,
                                         std::vector<std::size_t>* index_of = nullptr);

  /// Looks only: report.hit tells.
  std::vector<BuiltKernel> look_up(std::span<const KernelWish> wishes);

  /// Compiles at a time: config.jobs, as far as memory bears them.
  int jobs() const { return jobs_; }

  const Config& config() const { return config_; }
  cache::KernelCache& cache() { return cache_; }

 private:
  struct Item;

  Result<BuiltKernel> obtain(const Item& item, JitMode jit, const BuildOptions& options);
  Result<cache::Entry> compile(const Item& item, const BuildOptions& options);
  std::optional<BuiltKernel> verified(const Item& item, const cache::Entry& entry);
  Error missing_kernel(const Item& item, const std::string& why);
  /// The compiler's build, asked once; empty where there is no compiler, and then `why` says so.
  const std::string& compiler_build(std::string* why);
  std::vector<Item> distinct(std::span<const KernelWish> wishes, std::vector<std::size_t>* index_of) const;

  KernelReport headline(const Item& item) const;

  const Config config_;
  const int jobs_;
  const int places_;  ///< compiles at a time of all processes on this machine
  const Logger logger_;
  const std::shared_ptr<Compiler> compiler_;
  cache::KernelCache cache_;
  std::mutex mutex_;
  std::optional<Result<std::string>> compiler_build_;
};

}  // namespace w4moe
