#include "generator/compile/nvrtc_compiler.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/compile/kernel_check.hpp"

namespace w4moe {
namespace {

/// An architecture that this NVRTC does not know would otherwise come back as "invalid value for --gpu-architecture".
Status check_supported(const NvrtcLibrary& nvrtc, Arch arch) {
  const std::vector<int>& known = nvrtc.supported_archs();
  const int sm = static_cast<int>(arch) / 10;
  if (known.empty() || std::find(known.begin(), known.end(), sm) != known.end()) return {};
  return Error{ErrorCode::toolchain_missing,
               fmt::format("NVRTC {}.{} ({}) cannot compile for {}; it knows sm_{}. A newer NVRTC is needed.", nvrtc.version().major,
                           nvrtc.version().minor, nvrtc.path(), to_string(arch), fmt::join(known, ", sm_"))};
}

}  // namespace

Result<std::shared_ptr<const NvrtcLibrary>> NvrtcCompiler::library() {
  const std::lock_guard lock(mutex_);
  if (!library_) library_ = NvrtcLibrary::load(search_);
  return *library_;
}

Result<std::string> NvrtcCompiler::build() {
  const Result<std::shared_ptr<const NvrtcLibrary>> nvrtc = library();
  if (!nvrtc) return nvrtc.error();
  return (*nvrtc)->build();
}

Result<CompiledKernel> NvrtcCompiler::compile(const CompileRequest& request) {
  const Result<std::shared_ptr<const NvrtcLibrary>> loaded = library();
  if (!loaded) return loaded.error();
  const NvrtcLibrary& nvrtc = **loaded;
  if (Status s = check_supported(nvrtc, request.arch); !s) return s.error();
  Result<std::string> build = nvrtc.build();
  if (!build) return build.error();

  const std::vector<TemplateFile>& templates = request.templates ? *request.templates : template_bundle();
  std::vector<NvrtcLibrary::Header> headers = {{kVariantHeaderName.data(), request.source.variant_text.c_str()}};
  for (const TemplateFile& file : templates) headers.push_back({file.path.c_str(), file.text.c_str()});

  const auto begin = std::chrono::steady_clock::now();
  NvrtcLibrary::Output output =
      nvrtc.compile(request.source.entry_text, source_name(request).c_str(), headers, compiler_options(request));
  const double compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (output.status != kNvrtcSuccess) return nvrtc.failure(output, request.source.description);

  // Nothing that failed is a success (C33): the binary is read back before anyone else sees it.
  Result<CubinInfo> info = read_cubin(output.cubin);
  if (!info) {
    return Error{ErrorCode::compile_failed, fmt::format("{}: NVRTC {} gave {} bytes that are {}\n{}", request.source.description, *build,
                                                        output.cubin.size(), info.error().message, output.log)};
  }
  if (Status s = check_arch(*info, request.arch); !s)
    return Error{ErrorCode::compile_failed, fmt::format("{}: {}\n{}", request.source.description, s.error().message, output.log)};
  if (info->kernels.size() != 1 || info->kernel(request.source.entry_name) == nullptr) {
    return Error{ErrorCode::compile_failed,
                 fmt::format("{}: the source defines {} kernels, and should define {} alone\n{}", request.source.description,
                             info->kernels.size(), request.source.entry_name, output.log)};
  }
  add_spills_from_log(*info, output.log);
  return CompiledKernel{std::move(output.cubin), std::move(output.log), std::move(*info), compile_ms, std::move(*build)};
}

}  // namespace w4moe
