// The compiler of this project: NVRTC on texts in memory.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "generator/compile/compiler.hpp"
#include "generator/compile/nvrtc_library.hpp"

namespace w4moe {

/// Loads NVRTC at the first call of compile() or build(), so that a process that never compiles never needs it.
class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(NvrtcSearch search = {}) : search_(std::move(search)) {}

  Result<CompiledKernel> compile(const CompileRequest& request) override;
  Result<std::string> build() override;

  /// The library, loaded if it is not yet. A failure is remembered: later calls give the same answer at once.
  Result<std::shared_ptr<const NvrtcLibrary>> library();

 private:
  NvrtcSearch search_;
  std::mutex mutex_;
  std::optional<Result<std::shared_ptr<const NvrtcLibrary>>> library_;
};

}  // namespace w4moe
