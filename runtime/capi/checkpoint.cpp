#include "w4moe/checkpoint.hpp"

#include "runtime/capi/owned.hpp"
#include "runtime/capi/structs.hpp"

using namespace w4moe;
using namespace w4moe::capi;

struct w4moe_checkpoint {
  Checkpoint checkpoint;
};

struct w4moe_layer {
  explicit w4moe_layer(CheckpointLayer read) : layer(std::move(read)), problem(layer.problem), source(layer.source) {}
  CheckpointLayer layer;
  OwnedProblem problem;
  OwnedSource source;
};

struct w4moe_packed_file {
  explicit w4moe_packed_file(PackedFile opened) : file(std::move(opened)) {
    for (const PackedLayer& layer : file.layers()) problems.emplace_back(layer.problem);
  }
  PackedFile file;
  std::deque<OwnedProblem> problems;
};

namespace {

Status check_index(int64_t index, int64_t count) {
  if (index >= 0 && index < count) return {};
  return invalid_argument("index = {} (accepted: 0 to {})", index, count - 1);
}

Result<Shard> to_shard(const w4moe_shard* given) {
  const Result<w4moe_shard> from = read_optional("shard", given);
  if (!from) return from.error();
  const auto size = [](int32_t value) { return value == 0 ? i64{1} : i64{value}; };
  return Shard{{from->tp_rank, size(from->tp_size)}, {from->ep_rank, size(from->ep_size)}};
}

}  // namespace

extern "C" {

w4moe_status w4moe_checkpoint_open(const char* path, w4moe_checkpoint** checkpoint) {
  if (checkpoint != nullptr) *checkpoint = nullptr;
  return call(nullptr, [&]() -> Status {
    if (path == nullptr) return null_argument("path");
    if (checkpoint == nullptr) return null_argument("checkpoint");
    Result<Checkpoint> opened = Checkpoint::open(path);
    if (!opened) return opened.error();
    *checkpoint = new w4moe_checkpoint{std::move(*opened)};
    return {};
  });
}

void w4moe_checkpoint_destroy(w4moe_checkpoint* checkpoint) { delete checkpoint; }

int64_t w4moe_checkpoint_count(const w4moe_checkpoint* checkpoint) {
  return checkpoint == nullptr ? 0 : static_cast<int64_t>(checkpoint->checkpoint.layers().size());
}

w4moe_status w4moe_checkpoint_get_entry(const w4moe_checkpoint* checkpoint, int64_t index, w4moe_checkpoint_entry* entry) {
  return call(nullptr, [&]() -> Status {
    if (checkpoint == nullptr) return null_argument("checkpoint");
    if (Status s = check_size("entry", entry); !s) return s;
    if (Status s = check_index(index, w4moe_checkpoint_count(checkpoint)); !s) return s;
    const CheckpointEntry& from = checkpoint->checkpoint.layers()[static_cast<size_t>(index)];
    write_struct(entry, w4moe_checkpoint_entry{0, from.prefix.c_str(), from.number, from.tensors, from.bytes, from.other_dtype.c_str()});
    return {};
  });
}

w4moe_status w4moe_checkpoint_read(const w4moe_checkpoint* checkpoint, const char* layer, const w4moe_shard* shard, w4moe_layer** read) {
  if (read != nullptr) *read = nullptr;
  return call(nullptr, [&]() -> Status {
    if (checkpoint == nullptr) return null_argument("checkpoint");
    if (layer == nullptr) return null_argument("layer");
    if (read == nullptr) return null_argument("read");
    const Result<Shard> part = to_shard(shard);
    if (!part) return part.error();
    Result<CheckpointLayer> found = checkpoint->checkpoint.layer(layer, *part);
    if (!found) return found.error();
    *read = new w4moe_layer(std::move(*found));
    return {};
  });
}

void w4moe_layer_destroy(w4moe_layer* layer) { delete layer; }

w4moe_status w4moe_layer_get_info(const w4moe_layer* layer, w4moe_layer_info* info) {
  return call(nullptr, [&]() -> Status {
    if (layer == nullptr) return null_argument("layer");
    if (Status s = check_size("info", info); !s) return s;
    const CheckpointLayer& from = layer->layer;
    write_struct(info, w4moe_layer_info{0, from.prefix.c_str(), from.family.c_str(), from.fingerprint.c_str(), from.first_expert, from.total_experts});
    return {};
  });
}

const w4moe_problem* w4moe_layer_problem(const w4moe_layer* layer) { return layer == nullptr ? nullptr : &layer->problem.c(); }

const w4moe_source_weights* w4moe_layer_source(const w4moe_layer* layer) { return layer == nullptr ? nullptr : &layer->source.c(); }

w4moe_status w4moe_packed_open(const char* path, w4moe_packed_file** file) {
  if (file != nullptr) *file = nullptr;
  return call(nullptr, [&]() -> Status {
    if (path == nullptr) return null_argument("path");
    if (file == nullptr) return null_argument("file");
    Result<PackedFile> opened = PackedFile::open(path);
    if (!opened) return opened.error();
    *file = new w4moe_packed_file(std::move(*opened));
    return {};
  });
}

void w4moe_packed_destroy(w4moe_packed_file* file) { delete file; }

int64_t w4moe_packed_count(const w4moe_packed_file* file) { return file == nullptr ? 0 : static_cast<int64_t>(file->file.layers().size()); }

w4moe_status w4moe_packed_get_layer(const w4moe_packed_file* file, int64_t index, w4moe_packed_layer* layer) {
  return call(nullptr, [&]() -> Status {
    if (file == nullptr) return null_argument("file");
    if (Status s = check_size("layer", layer); !s) return s;
    if (Status s = check_index(index, w4moe_packed_count(file)); !s) return s;
    const PackedLayer& from = file->file.layers()[static_cast<size_t>(index)];
    write_struct(layer, w4moe_packed_layer{0, from.prefix.c_str(), from.family.c_str(), &file->problems[static_cast<size_t>(index)].c(), from.bytes.data(),
                                           static_cast<int64_t>(from.bytes.size()), from.first_expert, from.total_experts});
    return {};
  });
}

}  // extern "C"
