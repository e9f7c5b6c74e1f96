// libFuzzer entry of the parsers of checkpoints and packed files. The first byte chooses which. Configure with clang and -DW4MOE_FUZZ=ON
// -DW4MOE_SANITIZE=address,undefined.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/files/checkpoint_config.hpp"
#include "runtime/files/checkpoint_index.hpp"
#include "runtime/files/layer_families.hpp"
#include "runtime/files/packed_file.hpp"

namespace {

using namespace w4moe;

/// A layer read as a checkpoint's would be, with a config beside it.
void read_with_config(std::string_view text) {
  const std::size_t cut = text.find('\n');
  if (cut == std::string_view::npos) return;
  const Result<CheckpointConfig> config = parse_checkpoint_config(text.substr(0, cut), {}, "fuzz");
  if (!config) return;
  const std::string_view rest = text.substr(cut + 1);
  const Result<SafetensorsFile> file = SafetensorsFile::parse(std::as_bytes(std::span(rest.data(), rest.size())), "fuzz");
  if (!file) return;
  const std::vector<SafetensorsFile> files{*file};  // the table points into it
  Result<TensorTable> table = TensorTable::find_layer(files, {});
  if (!table) return;
  LayerFile layer;
  if (!read_family(*table, layer, read_hints(*config)) || !apply_checkpoint_config(*config, layer)) return;
  for (const Shard& shard : {Shard{{1, 2}, {}}, Shard{{}, {1, 2}}, Shard{{1, 4}, {0, 2}}}) {
    const Result<ShardedLayer> part = shard_layer(layer.problem, layer.source, shard);
    if (!part) continue;
    const Result<i64> bytes = prepared_weight_bytes(part->problem);
    if (!bytes || *bytes > (1 << 20)) continue;
    std::vector<std::byte> dest(static_cast<std::size_t>(*bytes));
    if (pack_on_cpu(part->problem, part->source, dest) && !verify_prepared(part->problem, part->source, dest)) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: (void)parse_index(text, "fuzz"); break;
    case 1: (void)parse_checkpoint_config(text, {}, "fuzz"); break;
    case 2: (void)parse_checkpoint_config({}, text, "fuzz"); break;
    case 3: (void)parse_packed_entry("layers.0.experts.", std::string(text)); break;
    default: read_with_config(text);
  }
  return 0;
}
