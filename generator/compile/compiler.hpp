// Source text -> kernel binary, behind an interface so that the builder and its tests can do without NVRTC.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/variant.h"
#include "generator/compile/cubin_info.hpp"
#include "generator/render/bundle.hpp"
#include "generator/render/variant_header.hpp"
#include "w4moe/device.hpp"
#include "w4moe/error.hpp"

namespace w4moe {

/// Choices that change the binary but not what it computes.
struct CompileOptions {
  bool line_info = false;          ///< source lines for profilers; larger binaries
  std::vector<std::string> extra = {};  ///< further NVRTC options, last; for experiments
};

struct CompileRequest {
  KernelSource source;
  Arch arch = Arch::sm_90a;
  CompileOptions options;
  /// Other device sources than those in the library, for tests and for work on the templates; null means the library's.
  std::shared_ptr<const std::vector<TemplateFile>> templates;
};

/// The request for a planned kernel.
CompileRequest compile_request(const Variant& variant, const CompileOptions& options = {});

struct CompiledKernel {
  std::vector<std::byte> cubin;  ///< never PTX: the driver's age plays no part
  std::string log;               ///< warnings, if any
  CubinInfo facts;               ///< read back from the cubin
  double compile_ms = 0;
  std::string nvrtc_version;     ///< "13.0.88": the builder of the cache entry
};

/// Thread-safe.
class Compiler {
 public:
  virtual ~Compiler() = default;

  /// compile_failed with the compiler's whole log, toolchain_missing where there is no usable compiler for this arch.
  /// What is returned as a success holds the one kernel asked for, for the right arch.
  virtual Result<CompiledKernel> compile(const CompileRequest& request) = 0;

  /// Which build of the compiler answers ("13.0.88"), without compiling a kernel. toolchain_missing if there is none.
  virtual Result<std::string> build() = 0;
};

/// The options of a request in the order in which NVRTC gets them, "-arch=" included.
std::vector<std::string> compiler_options(const CompileRequest& request);

/// Name of the source in messages: "w4moe_fc1.cu".
std::string source_name(const CompileRequest& request);

/// Calls sink(label, value) for everything that the binary depends on, in a fixed order, and for nothing else: no path, time,
/// host or driver (C13, C15). The compiler's build is not among them, see cache/key.hpp. Labels are string literals, so that
/// they can go straight into cache::KeyBuilder.
template <class Sink>
void visit_key_fields(const CompileRequest& request, Sink&& sink);

/// The same as a list.
std::vector<std::pair<std::string, std::string>> key_fields(const CompileRequest& request);

namespace compile_detail {
std::string bundle_digest_of(const CompileRequest& request);
std::string layout_version_text();
std::string args_version_text();
}  // namespace compile_detail

template <class Sink>
void visit_key_fields(const CompileRequest& request, Sink&& sink) {
  sink("layout_version", compile_detail::layout_version_text());
  sink("args_version", compile_detail::args_version_text());
  sink("bundle", compile_detail::bundle_digest_of(request));
  sink("variant", std::string_view(request.source.variant_text));
  sink("entry", std::string_view(request.source.entry_text));
  sink("arch", to_string(request.arch));
  for (const std::string& option : compiler_options(request)) sink("option", std::string_view(option));
  sink("output", std::string_view("cubin"));
}

}  // namespace w4moe
