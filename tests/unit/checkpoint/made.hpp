// Checkpoints made by tests/checkpoints/make_checkpoints.py, once a process, and changed copies of them.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "runtime/files/safetensors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"
#include "w4moe/checkpoint.hpp"

namespace w4moe::test {

namespace fs = std::filesystem;

inline constexpr const char* kFamilies[] = {"gpt-oss", "modelopt-deepseek", "modelopt-qwen3", "modelopt-glm", "modelopt-nemotron", "ct-nvfp4", "ct-nvfp4-exact",
                                            "ct-mxfp4", "ct-int4-kimi", "ct-int4-zp", "awq", "gptq", "gptq-sym", "gptq-v2", "deepseek-v4"};

/// The folder of all families; empty where Python has no numpy. A fault of the script is a fault of the test.
inline const fs::path& made() {
  static const TempDir folder;
  static const fs::path path = [] {
    const std::string command = std::string("'") + W4MOE_PYTHON + "' -B '" + W4MOE_MAKE_CHECKPOINTS + "' '" + folder.path().string() + "'";
    const int status = std::system(command.c_str());
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return fs::path{};
    if (status != 0) throw std::runtime_error("make_checkpoints.py failed");
    return folder.path();
  }();
  return path;
}

inline Checkpoint open(const fs::path& path) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path.string());
  if (!checkpoint) throw std::runtime_error(checkpoint.error().message);
  return *checkpoint;
}

inline CheckpointLayer layer_of(const Checkpoint& checkpoint, const std::string& name, const Shard& shard = {}) {
  Result<CheckpointLayer> layer = checkpoint.layer(name, shard);
  if (!layer) throw std::runtime_error(layer.error().message);
  return *layer;
}

/// Opening the checkpoint, reading its first layer and packing it: the first message, or nothing.
inline std::string refusal(const fs::path& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(path.string());
  if (!checkpoint) return checkpoint.error().message;
  const Result<CheckpointLayer> layer = checkpoint->layer(checkpoint->layers().front().prefix);
  if (!layer) return layer.error().message;
  const Result<i64> bytes = prepared_weight_bytes(layer->problem);
  if (!bytes) return bytes.error().message;
  std::vector<std::byte> dest(static_cast<std::size_t>(*bytes));
  const Status status = pack_on_cpu(layer->problem, layer->source, dest);
  return status ? std::string{} : status.error().message;
}

inline bool has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos) {
      UNSCOPED_INFO("'" << part << "' not in: " << text);
      return false;
    }
  }
  return true;
}

inline std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// A copy of a family's folder that a test may damage.
class Copy {
 public:
  explicit Copy(const std::string& family) { fs::copy(made() / family, path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing); }
  fs::path path() const { return folder_.path() / "model"; }

  /// Replaces a text in a file; a text that is not there is a fault of the test.
  void replace(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = read_text(path() / file);
    const std::size_t at = text.find(from);
    if (at == std::string::npos) throw std::runtime_error("no '" + from + "' in " + file);
    write_text(path() / file, text.replace(at, from.size(), to));
  }

  /// Writes a shard anew after `change` has had its tensors.
  void rewrite(const std::string& file, const std::function<void(std::vector<FileTensor>&)>& change) {
    const fs::path at = path() / file;
    Result<SafetensorsFile> read = SafetensorsFile::open(at.string());
    if (!read) throw std::runtime_error(read.error().message);
    std::vector<FileTensor> tensors = read->tensors();
    change(tensors);
    if (Status s = write_safetensors(at.string(), tensors); !s) throw std::runtime_error(s.error().message);
  }

 private:
  TempDir folder_;
};

}  // namespace w4moe::test
