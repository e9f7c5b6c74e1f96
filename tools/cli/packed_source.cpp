#include "tools/cli/packed_source.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/weights/operand.hpp"

namespace w4moe::cli {
namespace {

i64 id_at(const MoeInputs& in, i64 token, i64 route) {
  const i64 at = token * in.ids_row_stride_elems + route;
  return in.id_type == IdType::i32 ? static_cast<const i32*>(in.ids)[at] : static_cast<const i64*>(in.ids)[at];
}

std::vector<bool> named_experts(const Problem& problem, const MoeInputs& in) {
  std::vector<bool> named(static_cast<std::size_t>(problem.shape.experts));
  for (i64 token = 0; token < in.tokens; ++token) {
    for (i64 route = 0; route < problem.shape.topk; ++route) {
      const i64 id = id_at(in, token, route);
      if (id >= 0 && id < problem.shape.experts) named[static_cast<std::size_t>(id)] = true;
    }
  }
  if (std::none_of(named.begin(), named.end(), [](bool n) { return n; })) named[0] = true;
  return named;
}

/// Tensors of one expert's projection.
struct Tensors {
  SourceTensor codes, scales, zeros, bias;
  float global = 1.0f;
};

class Builder {
 public:
  Builder(const Problem& problem, PackedSource& into) : problem_(problem), into_(into) {}

  Tensors tensors(const UnpackedMatrix& m) {
    Tensors t;
    t.codes = codes(m);
    t.scales = scales(m);
    if (problem_.format.has_zero_point) t.zeros = {keep(m.zeros.data(), m.zeros.size()), SourceType::u8, {m.rows, m.groups}, {}};
    if (!m.bias.empty()) t.bias = {keep(m.bias.data(), m.bias.size() * sizeof(float)), SourceType::f32, {m.rows}, {}};
    t.global = m.global;
    return t;
  }

 private:
  const void* keep(const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    return into_.storage.emplace_back(begin, begin + bytes).data();
  }

  SourceTensor codes(const UnpackedMatrix& m) {
    std::vector<u8> nibbles;
    nibbles.reserve(m.codes.size() / 2);
    for (std::size_t i = 0; i + 1 < m.codes.size(); i += 2) nibbles.push_back(static_cast<u8>(m.codes[i] | m.codes[i + 1] << 4));
    return {keep(nibbles.data(), nibbles.size()), SourceType::u8, {m.rows, code_byte_columns(m.k)}, {}};
  }

  SourceTensor scales(const UnpackedMatrix& m) {
    const QuantFormat& format = problem_.format;
    const std::vector<i64> shape{m.rows, m.groups};
    if (format.scale_bytes() == 2) {
      return {keep(m.scales.data(), m.scales.size() * sizeof(u16)), format.scale == ScaleType::f16 ? SourceType::f16 : SourceType::bf16, shape, {}};
    }
    // MXFP4: the window's base, a power of two in the global, goes back into the bytes; blocks of zeros may lie anywhere.
    const int base = format.is_mxfp4() ? std::ilogb(m.global) : 0;
    std::vector<u8> bytes;
    bytes.reserve(m.scales.size());
    for (const u16 scale : m.scales) {
      const bool nan = format.is_mxfp4() && scale == kE8m0Nan;
      bytes.push_back(static_cast<u8>(nan ? scale : std::clamp<int>(scale + base, 0, format.is_mxfp4() ? 254 : 255)));
    }
    return {keep(bytes.data(), bytes.size()), SourceType::u8, shape, {}};
  }

  const Problem& problem_;
  PackedSource& into_;
};

SourceMatrix& matrix_of(SourceWeights& source, Projection projection) {
  return projection == Projection::gate ? source.gate : projection == Projection::up ? source.up : source.down;
}
std::vector<float>& globals_of(SourceWeights& source, Projection projection) {
  return projection == Projection::gate ? source.gate_global : projection == Projection::up ? source.up_global : source.down_global;
}

}  // namespace

Result<PackedSource> packed_source(const Problem& problem, std::span<const std::byte> prepared, const MoeInputs& inputs) {
  PackedSource packed;
  SourceWeights& source = packed.source;
  source.gate_up_order = GateUpOrder::separate;
  source.code_order = CodeOrder::low_nibble_first;
  source.code_sign = CodeSign::offset8;
  source.scale_layout = ScaleLayout::row_major;
  source.zero_order = problem.format.has_zero_point ? ZeroOrder::bytes : ZeroOrder::none;
  source.global_convention = problem.format.is_nvfp4() ? GlobalConvention::multiply : GlobalConvention::none;
  const std::vector<bool> named = named_experts(problem, inputs);
  const auto first = std::find(named.begin(), named.end(), true) - named.begin();
  Builder builder(problem, packed);
  for (const Projection projection : projections_of(problem)) {
    SourceMatrix& matrix = matrix_of(source, projection);
    std::vector<Tensors> experts(named.size());
    for (std::size_t e = 0; e < named.size(); ++e) {
      if (!named[e]) continue;
      const Result<UnpackedMatrix> unpacked = unpack_on_cpu(problem, prepared, projection, static_cast<i64>(e));
      if (!unpacked) return unpacked.error();
      experts[e] = builder.tensors(*unpacked);
    }
    for (std::size_t e = 0; e < named.size(); ++e) {
      const Tensors& t = experts[named[e] ? e : static_cast<std::size_t>(first)];
      matrix.codes.push_back(t.codes);
      matrix.scales.push_back(t.scales);
      if (t.zeros.data != nullptr) matrix.zeros.push_back(t.zeros);
      if (t.bias.data != nullptr) matrix.bias.push_back(t.bias);
      if (source.global_convention == GlobalConvention::multiply) globals_of(source, projection).push_back(t.global);
    }
  }
  return packed;
}

}  // namespace w4moe::cli
