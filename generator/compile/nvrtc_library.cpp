#include "generator/compile/nvrtc_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/compile/cubin_info.hpp"

namespace w4moe {
namespace {

namespace fs = std::filesystem;

/// Newest first.
constexpr const char* kSonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The libraries in a folder, or the file itself.
std::vector<std::string> files_at(const std::string& place) {
  std::error_code ignored;
  if (!fs::is_directory(place, ignored)) return {place};
  std::vector<std::string> files;
  for (const char* name : kSonames)
    if (is_there(fs::path(place) / name)) files.push_back((fs::path(place) / name).string());
  if (files.empty()) files.push_back((fs::path(place) / kSonames[0]).string());  // for the message: it does not exist
  return files;
}

/// Toolkit folders below /usr/local, the default one first, then the highest version.
std::vector<std::string> toolkit_folders() {
  std::vector<std::string> versioned;
  std::error_code error;
  for (fs::directory_iterator it("/usr/local", error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().rfind("cuda-", 0) == 0) versioned.push_back(it->path().string());
  }
  std::sort(versioned.rbegin(), versioned.rend());
  versioned.insert(versioned.begin(), "/usr/local/cuda");
  return versioned;
}

void add_existing(std::vector<std::string>& files, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    for (const char* name : kSonames)
      if (is_there(fs::path(folder) / name)) files.push_back((fs::path(folder) / name).string());
}

struct Candidates {
  std::vector<std::string> files;      ///< to be tried in this order
  std::vector<std::string> folders;    ///< looked into besides, for the message
};

Candidates candidates(const NvrtcSearch& search) {
  if (!search.explicit_path.empty()) return {files_at(search.explicit_path), {}};
  if (!search.environment_path.empty()) return {files_at(search.environment_path), {}};
  Candidates result;
  if (search.use_loader) result.files.assign(std::begin(kSonames), std::end(kSonames));
  for (const std::string& prefix : search.prefixes) {
    result.folders.push_back(prefix + "/nvidia/cu13/lib");
    result.folders.push_back(prefix + "/nvidia/cuda_nvrtc/lib");
  }
  if (search.use_well_known) {
    for (const std::string& folder : toolkit_folders()) {
      result.folders.push_back(folder + "/lib64");
      result.folders.push_back(folder + "/lib");
    }
  }
  add_existing(result.files, result.folders);
  return result;
}

/// The file that a function lies in, so that a library found by the loader is named by its path.
std::string file_of(void* function, const std::string& fallback) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : fallback;
}

void trim_end(std::string& text) {
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n' || text.back() == ' ')) text.pop_back();
}

}  // namespace

std::string nvrtc_builtins_name(NvrtcVersion version) {
  return fmt::format("libnvrtc-builtins.so.{}.{}", version.major, version.minor);
}

std::optional<std::string> NvrtcLibrary::bind(void* handle) {
  std::string missing;
  const auto find = [&](auto& function, const char* name, bool required = true) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && required) missing = name;
  };
  find(functions_.version, "nvrtcVersion");
  find(functions_.get_error_string, "nvrtcGetErrorString");
  find(functions_.create_program, "nvrtcCreateProgram");
  find(functions_.destroy_program, "nvrtcDestroyProgram");
  find(functions_.compile_program, "nvrtcCompileProgram");
  find(functions_.get_program_log_size, "nvrtcGetProgramLogSize");
  find(functions_.get_program_log, "nvrtcGetProgramLog");
  find(functions_.get_cubin_size, "nvrtcGetCUBINSize");
  find(functions_.get_cubin, "nvrtcGetCUBIN");
  find(functions_.get_num_supported_archs, "nvrtcGetNumSupportedArchs", false);
  find(functions_.get_supported_archs, "nvrtcGetSupportedArchs", false);
  if (!missing.empty()) return fmt::format("it has no function {}", missing);

  if (const NvrtcStatus status = functions_.version(&version_.major, &version_.minor); status != kNvrtcSuccess)
    return fmt::format("nvrtcVersion failed: {}", status_text(status));
  if (version_ < kOldestNvrtc) {
    return fmt::format("its version {}.{} is older than {}.{}, the oldest that is served", version_.major, version_.minor,
                       kOldestNvrtc.major, kOldestNvrtc.minor);
  }
  int count = 0;
  if (functions_.get_num_supported_archs != nullptr && functions_.get_supported_archs != nullptr &&
      functions_.get_num_supported_archs(&count) == kNvrtcSuccess && count > 0 && count < 1000) {
    supported_archs_.resize(static_cast<std::size_t>(count));
    if (functions_.get_supported_archs(supported_archs_.data()) != kNvrtcSuccess) supported_archs_.clear();
    std::sort(supported_archs_.begin(), supported_archs_.end());
  }
  return std::nullopt;
}

// NVRTC asks the loader for its builtins by bare name, which fails where nobody put its folder into the loader's path (a Python
// wheel, an unpacked archive). A library that is loaded already answers to its name, so the one beside NVRTC is loaded here.
void NvrtcLibrary::preload_builtins() const {
  std::error_code error;
  const fs::path real = fs::canonical(path_, error);
  for (const fs::path& folder : {fs::path(path_).parent_path(), error ? fs::path() : real.parent_path()}) {
    const fs::path file = folder / nvrtc_builtins_name(version_);
    if (!folder.empty() && is_there(file) && dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return;
  }
}

std::optional<std::string> NvrtcLibrary::open(const std::string& file, NvrtcLibrary& library) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return reason != nullptr ? reason : "the loader gave no reason";
  }
  if (std::optional<std::string> problem = library.bind(handle)) {
    dlclose(handle);
    return problem;
  }
  library.path_ = file_of(reinterpret_cast<void*>(library.functions_.version), file);
  library.preload_builtins();
  return std::nullopt;
}

Result<std::shared_ptr<const NvrtcLibrary>> NvrtcLibrary::load(const NvrtcSearch& search) {
  const Candidates places = candidates(search);
  std::string tried;
  for (const std::string& file : places.files) {
    std::shared_ptr<NvrtcLibrary> library(new NvrtcLibrary);
    const std::optional<std::string> problem = open(file, *library);
    if (!problem) return std::shared_ptr<const NvrtcLibrary>(std::move(library));
    tried += fmt::format("\n  {}: {}", file, *problem);
  }
  for (const std::string& folder : places.folders) {
    const auto below = [&](const std::string& file) { return file.rfind(folder + "/", 0) == 0; };
    if (std::none_of(places.files.begin(), places.files.end(), below))
      tried += fmt::format("\n  {}/: no libnvrtc.so.13 or libnvrtc.so.12 there", folder);
  }
  const char* where = !search.explicit_path.empty()      ? "at the path that was given"
                      : !search.environment_path.empty() ? "where W4MOE_NVRTC points"
                                                         : "on this machine";
  return Error{ErrorCode::toolchain_missing,
               fmt::format("compiling needs NVRTC, and none was found {}. Set W4MOE_NVRTC to a libnvrtc.so of CUDA {}.{} or newer (the "
                           "Python package nvidia-cuda-nvrtc has one), or use kernels that were built elsewhere. Tried:{}",
                           where, kOldestNvrtc.major, kOldestNvrtc.minor, tried.empty() ? " nothing, since every place is switched off" : tried)};
}

std::string NvrtcLibrary::status_text(NvrtcStatus status) const {
  const char* text = functions_.get_error_string != nullptr ? functions_.get_error_string(status) : nullptr;
  return text != nullptr ? text : fmt::format("NVRTC status {}", status);
}

Error NvrtcLibrary::failure(const Output& output, const std::string& what) const {
  const std::string builtins = nvrtc_builtins_name(version_);
  const std::string log = output.log.empty() ? "(its log is empty)" : output.log;
  if (output.status == kNvrtcBuiltinFailure || output.log.find("libnvrtc-builtins") != std::string::npos) {
    return Error{ErrorCode::toolchain_missing,
                 fmt::format("NVRTC {}.{}, loaded from {}, cannot load its own library {}. Put that file (it comes with NVRTC) into {}. "
                             "NVRTC says {}:\n{}",
                             version_.major, version_.minor, path_, builtins, fs::path(path_).parent_path().string(),
                             status_text(output.status), log)};
  }
  return Error{ErrorCode::compile_failed, fmt::format("{}: NVRTC {}.{} ({}) says {}:\n{}", what, version_.major, version_.minor,
                                                      path_, status_text(output.status), log)};
}

NvrtcLibrary::Output NvrtcLibrary::compile(const std::string& source, const char* source_name, const std::vector<Header>& headers,
                                           const std::vector<std::string>& options) const {
  std::vector<const char*> names, texts, option_texts;
  for (const Header& header : headers) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  for (const std::string& option : options) option_texts.push_back(option.c_str());

  Output output;
  NvrtcProgram program = nullptr;
  output.status = functions_.create_program(&program, source.c_str(), source_name, static_cast<int>(headers.size()), texts.data(),
                                            names.data());
  if (output.status != kNvrtcSuccess) return output;
  const auto destroy = [this](NvrtcProgramTag* p) { functions_.destroy_program(&p); };
  const std::unique_ptr<NvrtcProgramTag, decltype(destroy)> guard(program, destroy);

  output.status = functions_.compile_program(program, static_cast<int>(option_texts.size()), option_texts.data());
  std::size_t log_bytes = 0;
  if (functions_.get_program_log_size(program, &log_bytes) == kNvrtcSuccess && log_bytes > 0) {
    output.log.resize(log_bytes);
    if (functions_.get_program_log(program, output.log.data()) != kNvrtcSuccess) output.log.clear();
    trim_end(output.log);
  }
  if (output.status != kNvrtcSuccess) return output;

  std::size_t cubin_bytes = 0;
  output.status = functions_.get_cubin_size(program, &cubin_bytes);
  if (output.status != kNvrtcSuccess) return output;
  output.cubin.resize(cubin_bytes);
  if (cubin_bytes > 0) output.status = functions_.get_cubin(program, reinterpret_cast<char*>(output.cubin.data()));
  if (output.status != kNvrtcSuccess) output.cubin.clear();
  return output;
}

Result<std::string> NvrtcLibrary::build() const {
  const std::lock_guard lock(build_mutex_);
  if (!build_) {
    Result<std::string> probed = probe_build();
    if (!probed) return probed;
    build_ = *probed;
  }
  return *build_;
}

Result<std::string> NvrtcLibrary::probe_build() const {
  // The compiler's own macro, brought out as a constant of the cubin. sm_80 is known to every release that is served.
  constexpr const char* kSource = "extern \"C\" __constant__ unsigned long long w4moe_fact_build = __CUDACC_VER_BUILD__;\n";
  const Output output = compile(kSource, "w4moe_probe.cu", {}, {"-arch=sm_80"});
  if (output.status != kNvrtcSuccess) return failure(output, "the probe for the build number of NVRTC");
  const Result<CubinInfo> info = read_cubin(output.cubin);
  if (!info) return info.error();
  const std::optional<std::uint64_t> number = info->fact("w4moe_fact_build");
  if (!number) return Error{ErrorCode::internal, fmt::format("{}: the probe's cubin lacks the build number", path_)};
  return fmt::format("{}.{}.{}", version_.major, version_.minor, *number);
}

}  // namespace w4moe
