// Checkpoints as models ship them: a folder with config.json and safetensors shards, or one file. Layers are found by the names of
// their tensors, read in place (memory-mapped, no copy), cut for a rank, and packed into files that an engine maps.
// docs/checkpoints.md lists the families.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "w4moe/weights.hpp"

namespace w4moe {

/// One rank of a group, counted from 0.
struct RankOf {
  i64 rank = 0;
  i64 size = 1;
};

/// The part of a layer that a process holds. Tensor parallelism cuts I: rows of gate and up, columns of down. Expert parallelism
/// takes a run of adjacent experts.
struct Shard {
  RankOf tp;
  RankOf ep;
};

/// A layer, or the part of one, with the problem that describes it.
struct ShardedLayer {
  Problem problem;        ///< I per rank and experts held
  SourceWeights source;   ///< points into the same tensors; no byte is copied
  i64 first_expert = 0;   ///< number of local expert 0 in the whole layer
};

/// Cuts a rank's part out of a layer. The bias of `down` stays with tensor-parallel rank 0 (output_bias is false elsewhere), so that
/// the sum over ranks counts it once. Errors name the size that does not divide and what would: E by ep, I by tp, I / tp by the
/// format's group and, where eight rows share a word, by 8. Swizzled scales are not cut along I.
Result<ShardedLayer> shard_layer(const Problem& problem, const SourceWeights& source, const Shard& shard);

/// What is known of a layer without reading it.
struct CheckpointEntry {
  std::string prefix;       ///< of its tensors' names, up to and with "experts."
  i64 number = -1;          ///< N of "layers.N."; -1 where there is none, and for layers of "mtp."
  i64 tensors = 0;
  i64 bytes = 0;            ///< of its expert tensors
  std::string other_dtype;  ///< not empty: the experts are not quantised to 4 bits, but held in this dtype
};

/// One layer read from a checkpoint.
struct CheckpointLayer {
  std::string prefix;
  std::string family;    ///< "gpt-oss", "mxfp4 per expert", "modelopt", "compressed-tensors", "gptq", "awq"
  Problem problem;       ///< of the shard; top-k from config.json, else 1; max_tokens is 1, and the caller's to set
  SourceWeights source;  ///< points into the mapped files
  Shard shard;
  i64 first_expert = 0;
  i64 total_experts = 0;
  std::string fingerprint;            ///< 32 hex digits over names, dtypes, shapes and a sample of the tensors' bytes
  std::shared_ptr<const void> files;  ///< keeps the mapping
};

/// Tensors that are no routed experts, by kind: numbers in names are written as *.
struct SkippedTensors {
  std::string name;   ///< "model.layers.*.self_attn.q_proj.weight"
  std::string kind;   ///< "shared expert", "router" or "other"
  i64 tensors = 0;
  i64 bytes = 0;
};

/// An open checkpoint. Cheap to copy; copies share the mapping. Safe from any thread.
class Checkpoint {
 public:
  /// A folder (model.safetensors.index.json with its shards, or model.safetensors, or the only *.safetensors; config.json and
  /// hf_quant_config.json where they exist), an index file, or one safetensors file. Maps every shard and checks every header.
  static Result<Checkpoint> open(const std::string& path);

  const std::string& path() const;
  const std::vector<CheckpointEntry>& layers() const;  ///< by number, then by prefix
  std::vector<SkippedTensors> skipped() const;

  /// Reads one layer: `layer` is its number, or its prefix (with or without "experts."). Checks every tensor, and what config.json
  /// says against what they show.
  Result<CheckpointLayer> layer(const std::string& layer, const Shard& shard = {}) const;

 private:
  struct Impl;
  explicit Checkpoint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Compares what the source's tensors stand for with what prepared weights hold: every weight and bias, by value, through a decoder
/// that shares nothing with the packer. Errors (corrupt) name the first difference. `threads` 0: all of the machine's.
Status verify_prepared(const Problem& problem, const SourceWeights& source, std::span<const std::byte> prepared, int threads = 1);

/// A layer in a packed file (docs/formats/packed.md). `bytes` are prepared weights: copy them to the device and Engine::adopt().
struct PackedLayer {
  std::string prefix;
  std::string family;
  std::string fingerprint;
  Problem problem;
  Shard shard;
  i64 first_expert = 0;
  i64 total_experts = 0;
  std::span<const std::byte> bytes;
};

/// A packed file, memory-mapped. Headers of all layers are checked; weights are not read.
class PackedFile {
 public:
  static Result<PackedFile> open(const std::string& path);
  const std::vector<PackedLayer>& layers() const { return layers_; }

 private:
  std::shared_ptr<const void> owner_;
  std::vector<PackedLayer> layers_;
};

/// Packs layers on the CPU into one file, which appears under its name only when it is whole. Packs straight into the mapped file:
/// no second copy is in memory at any time. `options.on_expert_done` counts experts over all layers.
Status write_packed(const std::string& path, std::span<const CheckpointLayer> layers, const PackOptions& options = {});

/// True where `packed` is what packing `layer` would give: same shard, problem, layout and fingerprint.
bool is_packed_form_of(const PackedLayer& packed, const CheckpointLayer& layer);

}  // namespace w4moe
