#include "runtime/lockstep/host_compiler.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "cache/fs.hpp"
#include "cache/location.hpp"
#include "generator/render/embedded.hpp"
#include "runtime/config.hpp"
#include "runtime/lockstep/embedded.hpp"
#include "runtime/lockstep/fiber.hpp"

extern char** environ;

namespace w4moe::lockstep {
namespace {

namespace fs = std::filesystem;

Error io_error(const std::string& message) { return Error{ErrorCode::io, message}; }

Result<std::string> find_compiler(const Options& options) {
  std::vector<std::string> names{"g++", "c++", "clang++"};
#if defined(__clang__)
  names = {"clang++", "c++", "g++"};  // a sanitizer's runtime belongs to one compiler
#endif
  if (!options.compiler.empty()) names = {options.compiler};
  const std::string path = process_environment("PATH").value_or("/usr/bin:/bin");
  for (const std::string& name : names) {
    if (name.find('/') != std::string::npos) {
      if (access(name.c_str(), X_OK) == 0) return name;
      continue;
    }
    std::istringstream dirs(path);
    for (std::string dir; std::getline(dirs, dir, ':');) {
      const std::string candidate = (dir.empty() ? "." : dir) + "/" + name;
      if (access(candidate.c_str(), X_OK) == 0) return candidate;
    }
  }
  return Error{ErrorCode::toolchain_missing,
               fmt::format("lock-step device: no C++ compiler found; looked for {} on PATH. It compiles the kernels for this machine's CPU: install g++ 12 or clang 14, or newer", fmt::join(names, ", "))};
}

Result<std::string> read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return io_error(fmt::format("cannot read {}", path.string()));
  return text.str();
}

Status write_file(const fs::path& path, std::string_view text) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) return io_error(fmt::format("cannot write {}", path.string()));
  return {};
}

/// Hash of everything that the shared object depends on, except the compiler's own headers.
class Digest {
 public:
  Digest() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~Digest() { XXH3_freeState(state_); }
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(std::string_view text) {
    const std::uint64_t size = text.size();
    XXH3_128bits_update(state_, &size, sizeof size);
    XXH3_128bits_update(state_, text.data(), text.size());
  }
  Status add_file(const fs::path& path) {
    Result<std::string> text = read_file(path);
    if (!text) return text.error();
    add(path.filename().string());
    add(*text);
    return {};
  }
  Status add_tree(const fs::path& dir) {
    std::vector<fs::path> files;
    std::error_code error;
    for (fs::recursive_directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      const std::string extension = it->path().extension().string();
      if (it->is_regular_file() && (extension == ".h" || extension == ".cuh" || extension == ".hpp")) files.push_back(it->path());
    }
    if (error) return io_error(fmt::format("cannot list {}: {}", dir.string(), error.message()));
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      if (Status s = add_file(file); !s) return s;
    }
    return {};
  }
  std::string text() const {
    const XXH128_hash_t h = XXH3_128bits_digest(state_);
    return fmt::format("{:016x}{:016x}", h.high64, h.low64);
  }

 private:
  XXH3_state_t* state_;
};

/// Runs the command with both outputs in `log`; its exit code, or an error where it could not be started.
Result<int> run_command(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Error{ErrorCode::toolchain_missing, fmt::format("cannot start {}: {}", command[0], std::strerror(failed))};
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// The directory of the shared objects: the caller's, or one below the user's cache. Loading an object is running it, so the
/// latter must be this user's alone.
Result<fs::path> cache_directory(const Options& options) {
  if (!options.cache_dir.empty()) {
    std::error_code error;
    fs::create_directories(options.cache_dir, error);
    if (error) return io_error(fmt::format("cannot make {}: {}", options.cache_dir, error.message()));
    return fs::path(options.cache_dir);
  }
  std::string root = options.cache_root;
  if (root.empty()) {
    const cache::Location location = cache::resolve_location(std::nullopt, process_environment);
    if (location.path.empty()) {
      return io_error("lock-step device: no directory to keep compiled kernels in: " + location.warning);
    }
    root = location.path;
  }
  const fs::path dir = fs::path(root) / "lockstep";
  const cache::OpenedDir opened = cache::open_trusted_dir(dir.string(), {}, 0700);
  if (!opened.fd) return io_error(fmt::format("lock-step device: kernels are not kept in {}: {}", dir.string(), opened.why));
  return dir;
}

}  // namespace

std::vector<std::string> host_compile_flags(const Options& options) {
  std::vector<std::string> flags{"-std=c++20", "-O1", "-g1", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti",
                                 "-fvisibility=hidden", "-ffp-contract=off", "-Wno-unknown-pragmas",
                                 "-Wl,-Bsymbolic"};
#if defined(W4MOE_LOCKSTEP_ASAN)
  flags.insert(flags.end(), {"-fsanitize=address,undefined", "-fno-sanitize=null,vptr", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"});
#elif defined(W4MOE_LOCKSTEP_TSAN)
  flags.insert(flags.end(), {"-fsanitize=thread", "-fno-omit-frame-pointer"});
#endif
  flags.insert(flags.end(), options.compile_flags.begin(), options.compile_flags.end());
  return flags;
}

Result<SharedObject> build_shared_object(const KernelSource& source, const Options& options) {
  const Result<std::string> compiler = find_compiler(options);
  if (!compiler) return compiler.error();
  std::vector<std::string> flags = host_compile_flags(options);
  flags.push_back("-DW4MOE_OPS_HEADER=\"ops_host.h\"");
  std::vector<std::string> include_dirs;
  std::vector<std::pair<std::string, std::string>> headers = source.headers;
  if (options.source_dir.empty()) {
    const auto add = [&](std::span<const render::EmbeddedFile> files) {
      for (const render::EmbeddedFile& file : files) {
        const bool replaced = std::any_of(source.headers.begin(), source.headers.end(), [&](const auto& h) { return h.first == file.path; });
        if (!replaced) headers.emplace_back(file.path, file.text);
      }
    };
    add(render::embedded_files());
    add(embedded_files());
  } else {
    include_dirs = {options.source_dir + "/templates", options.source_dir + "/runtime/lockstep"};
  }

  Digest digest;
  digest.add(*compiler);
  for (const std::string& flag : flags) digest.add(flag);
  digest.add(source.text);
  for (const auto& [name, text] : headers) {
    digest.add(name);
    digest.add(text);
  }
  if (!options.source_dir.empty()) {
    if (Status s = digest.add_tree(include_dirs[0]); !s) return s.error();
    for (const char* name : {"/abi.h", "/ops_host.h"}) {
      if (Status s = digest.add_file(include_dirs[1] + name); !s) return s.error();
    }
  }

  const Result<fs::path> cache = cache_directory(options);
  if (!cache) return cache.error();
  const fs::path object = *cache / (digest.text() + ".so");
  SharedObject result{object.string(), digest.text(), false, 0};
  if (fs::exists(object)) return result;
  if (!options.may_compile) {
    return Error{ErrorCode::not_prepared, fmt::format("lock-step device: {} is not compiled yet, and compiling is off", source.name)};
  }
  const auto start = std::chrono::steady_clock::now();

  static std::atomic<int> counter{0};
  const fs::path work = *cache / fmt::format("{}.{}.{}", digest.text(), getpid(), counter++);
  const fs::path main_file = work / (source.name + ".cpp");
  if (Status s = write_file(main_file, source.text); !s) return s.error();
  for (const auto& [name, text] : headers) {
    if (Status s = write_file(work / name, text); !s) return s.error();
  }
  std::vector<std::string> command{*compiler};
  command.insert(command.end(), flags.begin(), flags.end());
  command.push_back("-I" + work.string());
  for (const std::string& dir : include_dirs) command.push_back("-I" + dir);
  command.insert(command.end(), {"-o", (work / "kernel.so").string(), main_file.string()});
  const Result<int> exit_code = run_command(command, work / "log");
  std::error_code error;
  if (!exit_code || *exit_code != 0) {
    const Result<std::string> log = read_file(work / "log");
    fs::remove_all(work, error);
    if (!exit_code) return exit_code.error();
    return Error{ErrorCode::compile_failed, fmt::format("lock-step device: {} does not compile for the host\n{}\n{}", source.name,
                                                        fmt::join(command, " "), log ? *log : std::string())};
  }
  fs::rename(work / "kernel.so", object, error);
  std::error_code ignored;
  fs::remove_all(work, ignored);
  if (error) return io_error(fmt::format("cannot write {}: {}", object.string(), error.message()));
  result.compiled = true;
  result.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace w4moe::lockstep
