// libFuzzer entry of the safetensors reader and the layer families. Configure with clang and -DW4MOE_FUZZ=ON -DW4MOE_SANITIZE=address,undefined.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/files/layer_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace w4moe;
  const auto bytes = std::as_bytes(std::span(data, size));
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes, "fuzz");
  if (!file) return 0;
  for (const FileTensor& tensor : file->tensors()) {
    if (tensor.bytes > 0 && (tensor.data < bytes.data() || tensor.data + tensor.bytes > bytes.data() + size)) __builtin_trap();
  }
  (void)read_inputs(*file, 2);
  const Result<LayerFile> layer = read_layer({*file});
  if (!layer) return 0;
  const Result<i64> prepared = prepared_weight_bytes(layer->problem);
  if (!prepared || *prepared > (1 << 20)) return 0;
  std::vector<std::byte> dest(static_cast<std::size_t>(*prepared));
  (void)pack_on_cpu(layer->problem, layer->source, dest);
  return 0;
}
