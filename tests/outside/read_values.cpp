// Writes what the packed form of one layer stands for, in fp32, so that any program can compare: read, packed and unpacked.
//
//   w4moe_read_values CHECKPOINT LAYER OUT.safetensors
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "runtime/files/safetensors.hpp"
#include "runtime/weights/float_bits.hpp"
#include "runtime/weights/operand.hpp"
#include "w4moe/checkpoint.hpp"

namespace w4moe {
namespace {

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

double scale_of(ScaleType type, u32 bits) {
  if (type == ScaleType::bf16) return static_cast<double>(float_of_bf16(static_cast<u16>(bits)));
  if (type == ScaleType::f16) return static_cast<double>(float_of_f16(static_cast<u16>(bits)));
  if (type == ScaleType::e8m0) return std::ldexp(1.0, static_cast<int>(bits) - 127);
  const auto exponent = static_cast<int>(bits >> 3 & 15u);
  const double mantissa = bits & 7u;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0 + mantissa, exponent - 10);
}

std::vector<float> values_of(const CheckpointLayer& layer, std::span<const std::byte> prepared, Projection projection, std::vector<float>& bias) {
  static constexpr double kE2m1[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  const QuantFormat& format = layer.problem.format;
  std::vector<float> values;
  for (i64 expert = 0; expert < layer.problem.shape.experts; ++expert) {
    const UnpackedMatrix m = must(unpack_on_cpu(layer.problem, prepared, projection, expert));
    bias.insert(bias.end(), m.bias.begin(), m.bias.end());
    for (i64 row = 0; row < m.rows; ++row) {
      for (i64 k = 0; k < m.k; ++k) {
        const auto group = static_cast<std::size_t>(row * m.groups + format.group_of(k));
        const u8 code = m.codes[static_cast<std::size_t>(row * m.k + k)];
        const double value = format.is_int4() ? code - m.zeros[group] : kE2m1[code];
        values.push_back(static_cast<float>(value * scale_of(format.scale, m.scales[group]) * static_cast<double>(m.global)));
      }
    }
  }
  return values;
}

int program(const std::string& checkpoint, const std::string& name, const std::string& out) {
  const CheckpointLayer layer = must(must(Checkpoint::open(checkpoint)).layer(name));
  const std::string packed = out + ".packed.safetensors";  // left beside it: safetensors' own reader is asked to open it
  if (Status s = write_packed(packed, std::span(&layer, 1)); !s) {
    std::fprintf(stderr, "%s\n", s.error().message.c_str());
    return 1;
  }
  const PackedFile file = must(PackedFile::open(packed));
  std::vector<std::vector<float>> kept;
  kept.reserve(8);
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& tensor, std::vector<i64> shape, std::vector<float> values) {
    kept.push_back(std::move(values));
    tensors.push_back({tensor, "F32", std::move(shape), reinterpret_cast<const std::byte*>(kept.back().data()), static_cast<i64>(kept.back().size() * sizeof(float))});
  };
  for (const Projection projection : projections_of(layer.problem)) {
    std::vector<float> bias;
    std::vector<float> values = values_of(layer, file.layers().front().bytes, projection, bias);
    const bool down = projection == Projection::down;
    const Shape& s = layer.problem.shape;
    add(std::string(to_string(projection)), {s.experts, down ? s.hidden : s.intermediate, down ? s.intermediate : s.hidden}, std::move(values));
    if (!bias.empty()) add(std::string(to_string(projection)) + "_bias", {s.experts, down ? s.hidden : s.intermediate}, std::move(bias));
  }
  const Status written = write_safetensors(out, tensors);
  if (!written) std::fprintf(stderr, "%s\n", written.error().message.c_str());
  return written ? 0 : 1;
}

}  // namespace
}  // namespace w4moe

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s CHECKPOINT LAYER OUT.safetensors\n", argv[0]);
    return 2;
  }
  return w4moe::program(argv[1], argv[2], argv[3]);
}
