#include "runtime/build/kernel_builder.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

#include "generator/compile/kernel_check.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/manifest/manifest.hpp"
#include "runtime/build/kernel_entry.hpp"
#include "runtime/build/missing_kernel.hpp"
#include "runtime/build/job_limit.hpp"
#include "runtime/build/parallel.hpp"
#include "runtime/guarded.hpp"

namespace w4moe {

struct KernelBuilder::Item {
  KernelWish wish;
  CompileRequest request;
  std::string key_text;
  cache::Key key;
};

namespace {

/// Raised when the meaning of the key's fields changes.
constexpr const char* kKeySchema = "1";

NvrtcSearch nvrtc_search(const Config& config) {
  NvrtcSearch search;
  search.explicit_path = config.nvrtc_option;
  search.environment_path = config.nvrtc_environment;
  return search;
}

cache::CacheOptions cache_options(const Config& config, const Logger& logger) {
  cache::CacheOptions options = config.cache;
  options.disk.warn = [logger](const std::string& message) { logger.warning(message); };
  return options;
}

std::size_t index_in(std::map<cache::Key, std::size_t>& places, const cache::Key& key) {
  return places.emplace(key, places.size()).first->second;
}

/// W4MOE_DUMP_DIR: what was compiled and what came out, for people. Best effort.
void dump(const std::string& dir, const CompileRequest& request, const cache::Key& key, const Result<CompiledKernel>& compiled,
          const Logger& logger) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(dir) / fmt::format("{}-{}", request.source.entry_name, key.short_hex());
  std::error_code error;
  fs::create_directories(folder, error);
  const auto write = [&](const std::string& name, const char* data, std::size_t bytes) {
    std::ofstream file(folder / name, std::ios::binary);
    file.write(data, static_cast<std::streamsize>(bytes));
    if (!file) error = std::make_error_code(std::errc::io_error);
  };
  write(std::string(kVariantHeaderName), request.source.variant_text.data(), request.source.variant_text.size());
  write(source_name(request), request.source.entry_text.data(), request.source.entry_text.size());
  const std::string& log = compiled ? compiled->log : compiled.error().message;
  write("log.txt", log.data(), log.size());
  if (compiled) write("kernel.cubin", reinterpret_cast<const char*>(compiled->cubin.data()), compiled->cubin.size());
  if (error) logger.warning(fmt::format("W4MOE_DUMP_DIR: cannot write to {}: {}", folder.string(), error.message()));
}

}  // namespace

std::string kernel_key_text(const CompileRequest& request) {
  cache::KeyBuilder builder;
  builder.field("schema", kKeySchema);
  visit_key_fields(request, [&](cache::KeyLabel label, std::string_view value) { builder.field(label, value); });
  return builder.text();
}

KernelBuilder::KernelBuilder(Config config, Logger logger, std::shared_ptr<Compiler> compiler)
    : config_(std::move(config)),
      jobs_(bounded_jobs(config_.jobs, config_.memory_bytes)),
      places_(bounded_jobs(std::max(config_.jobs, processors()), config_.memory_bytes)),
      logger_(std::move(logger)),
      compiler_(compiler ? std::move(compiler) : std::make_shared<NvrtcCompiler>(nvrtc_search(config_))),
      cache_(cache_options(config_, logger_)) {
  if (!config_.cache_warning.empty() && config_.cache.mode != cache::CacheMode::off) logger_.warning(config_.cache_warning);
}

const std::string& KernelBuilder::compiler_build(std::string* why) {
  static const std::string none;
  const std::lock_guard lock(mutex_);
  if (!compiler_build_) compiler_build_ = compiler_->build();
  if (*compiler_build_) return **compiler_build_;
  if (why != nullptr) *why = compiler_build_->error().message;
  return none;
}

std::vector<KernelBuilder::Item> KernelBuilder::distinct(std::span<const KernelWish> wishes, std::vector<std::size_t>* index_of) const {
  std::vector<Item> items;
  std::map<cache::Key, std::size_t> places;
  if (index_of != nullptr) index_of->clear();
  for (const KernelWish& wish : wishes) {
    Item item{wish, compile_request(wish.variant), {}, {}};
    item.key_text = kernel_key_text(item.request);
    item.key = cache::Key::of_text(item.key_text);
    const std::size_t place = index_in(places, item.key);
    if (index_of != nullptr) index_of->push_back(place);
    if (place == items.size()) items.push_back(std::move(item));
  }
  return items;
}

KernelReport KernelBuilder::headline(const Item& item) const {
  KernelReport report;
  report.key = item.key.hex();
  report.name = item.wish.name;
  report.arch = to_string(item.wish.variant.arch);
  report.description = item.request.source.description;
  return report;
}

std::optional<BuiltKernel> KernelBuilder::verified(const Item& item, const cache::Entry& entry) {
  Result<CubinInfo> info = read_cubin(*entry.payload);
  Status fits = info ? check_kernel(*info, item.wish.variant) : Status(info.error());
  if (fits) return BuiltKernel{kernel_report(item.request, item.wish, *info, entry), entry.payload};
  logger_.warning(fmt::format("cache entry {} is not the kernel it should be and is not used: {}", item.key.short_hex(), fits.error().message));
  return std::nullopt;
}

Error KernelBuilder::missing_kernel(const Item& item, const std::string& why) {
  std::string text = fmt::format("kernel {} ({}) is not in the cache and {}.\n  key {}, made of{}\n  {}", item.wish.name, item.request.source.description,
                                 why, item.key.hex(), key_lines(item.key_text), nearest_entry(cache_.store(), item.key_text));
  if (config_.cache.mode == cache::CacheMode::off) text += "\n  W4MOE_CACHE=off (or cache = off) leaves every directory unread, read-only ones too";
  if (item.wish.plan != nullptr) {
    text += fmt::format("\n  to build it ahead of time, add this to the manifest of 'w4moe build --arch {}':\n    {}", to_string(item.wish.variant.arch),
                        manifest_entry(item.wish.plan->problem, item.wish.plan->options));
  }
  return Error{ErrorCode::not_prepared, std::move(text)};
}

Result<cache::Entry> KernelBuilder::compile(const Item& item, const BuildOptions& options) {
  if (options.cancelled && options.cancelled()) return Error{ErrorCode::not_prepared, "the build was cancelled"};
  const cache::RangeLock place = cache_.compile_place(places_);
  if (options.cancelled && options.cancelled()) return Error{ErrorCode::not_prepared, "the build was cancelled"};
  logger_.debug(fmt::format("compiling {} ({})", item.wish.name, item.request.source.description));
  Result<CompiledKernel> compiled = compiler_->compile(item.request);
  if (!config_.dump_dir.empty()) dump(config_.dump_dir, item.request, item.key, compiled, logger_);
  if (!compiled) return compiled.error();
  if (Status s = check_kernel(compiled->facts, item.wish.variant); !s) {
    return Error{ErrorCode::internal, fmt::format("the compiled kernel {} is not what was asked for: {}", item.wish.name, s.error().message)};
  }
  logger_.info(fmt::format("compiled {} ({}) in {:.0f} ms", item.wish.name, item.request.source.description, compiled->compile_ms));
  return kernel_entry(item.request, item.key_text, item.wish, *compiled);
}

Result<BuiltKernel> KernelBuilder::obtain(const Item& item, JitMode jit, const BuildOptions& options) {
  std::string no_compiler;
  const std::string builder = jit == JitMode::on ? compiler_build(&no_compiler) : std::string();
  const cache::EntryName name(item.key, builder);
  const bool can_compile = jit == JitMode::on && !builder.empty();

  if (!can_compile) {
    if (const auto entry = cache_.get(name)) {
      if (std::optional<BuiltKernel> built = verified(item, *entry)) {
        built->report.hit = true;
        return std::move(*built);
      }
    }
    if (jit == JitMode::off) return missing_kernel(item, "compiling is forbidden (W4MOE_JIT=off, jit = off, freeze, or preload)");
    Error error = missing_kernel(item, "there is no usable compiler: " + no_compiler);
    error.code = ErrorCode::toolchain_missing;
    return error;
  }

  std::optional<double> compile_ms;  // set where this call compiles
  const auto build = [&]() -> Result<cache::Entry> {
    const auto start = std::chrono::steady_clock::now();
    Result<cache::Entry> entry = compile(item, options);
    compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return entry;
  };
  Result<cache::Entry> entry = cache_.get_or_build(name, build);
  if (!entry) return entry.error();
  std::optional<BuiltKernel> built = verified(item, *entry);
  if (!built) {
    // The entry is whole but is no such kernel. Made anew; in memory it comes before whatever a read-only directory keeps.
    cache_.store().remove(name);
    entry = build();
    if (!entry) return entry.error();
    cache_.store().put(*entry);
    built = verified(item, *entry);
    if (!built) return Error{ErrorCode::internal, fmt::format("the compiled kernel {} fails its own check", item.wish.name)};
  }
  built->report.hit = !compile_ms.has_value();
  built->report.compile_ms = compile_ms.value_or(0.0);
  return std::move(*built);
}

Result<std::vector<BuiltKernel>> KernelBuilder::build(std::span<const KernelWish> wishes, JitMode jit, const BuildOptions& options,
                                                      std::vector<std::size_t>* index_of) {
  std::vector<Item> items = distinct(wishes, index_of);
  if (options.wanted) std::erase_if(items, [&](const Item& item) { return !options.wanted(headline(item)); });
  std::vector<BuiltKernel> kernels(items.size());
  std::optional<Error> first_error;
  std::mutex mutex;
  int done = 0;
  const int count = static_cast<int>(items.size());
  for_each_index(count, jobs_, [&](int i) {
    const Item& item = items[static_cast<std::size_t>(i)];
    Result<BuiltKernel> built = guarded([&] { return obtain(item, jit, options); });
    const std::lock_guard lock(mutex);
    BuiltKernel& kernel = kernels[static_cast<std::size_t>(i)];
    if (built) {
      kernel = std::move(*built);
    } else {
      if (!first_error) first_error = built.error();
      kernel.report = headline(item);
      kernel.report.error = built.error().message;
    }
    ++done;
    if (options.progress) options.progress(kernel.report, done, count);
    return built.ok() || options.keep_going;
  });
  if (first_error && !options.keep_going) return *first_error;
  return kernels;
}

std::vector<BuiltKernel> KernelBuilder::look_up(std::span<const KernelWish> wishes) {
  std::vector<BuiltKernel> kernels;
  for (const Item& item : distinct(wishes, nullptr)) {
    BuiltKernel kernel;
    if (const auto entry = cache_.get(cache::EntryName(item.key))) {
      if (std::optional<BuiltKernel> found = verified(item, *entry)) {
        kernel = std::move(*found);
        kernel.report.hit = true;
      }
    }
    if (!kernel.report.hit) kernel.report = headline(item);
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace w4moe
