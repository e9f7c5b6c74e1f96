#include "tests/conformance/cases.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

namespace w4moe::conformance {
namespace {

constexpr Case kCases[] = {
    {0, "shuffle_up, shuffle_xor, shuffle, ballot, count_bits", Nearness::same_words},
    {1, "copy16_async", Nearness::same_words},
    {2, "load_matrix_x4", Nearness::same_words},
    {3, "mma_16816<bf16>, integers", Nearness::same_words},
    {4, "mma_16816<f16>, integers", Nearness::same_words},
    // The machine cuts bits off below the largest product; the model rounds once.
    {5, "mma_16816<bf16>, any mantissa", Nearness::absolute, 2e-4},
    {6, "mma_16816<f16>, any mantissa", Nearness::absolute, 2e-4},
    {7, "mul2, sub2, pack2 of bf16", Nearness::same_halves, 0, true},
    {8, "mul2, sub2, pack2 of f16", Nearness::same_halves},
    {9, "unpack_lo, unpack_hi", Nearness::same_floats},
    {10, "broadcast_lo, broadcast_hi", Nearness::same_words},
    {11, "exp2_fast, reciprocal_fast", Nearness::ulps, 4},
    {12, "tanh_precise, erf_precise", Nearness::ulps, 4},
    {13, "atomics", Nearness::same_words},
    {14, "store_shared_x4, load_shared_x4, streaming loads", Nearness::same_words},
    {15, "copy_bulk, mbarriers", Nearness::same_words, 0, false, true},
    {16, "copy_arrive", Nearness::same_words, 0, false, true},
    {17, "store_matrix_x4_transposed, barrier_of", Nearness::same_words, 0, false, true},
    {18, "wgmma<bf16, 8>, integers", Nearness::same_words, 0, false, true},
    {19, "wgmma<bf16, 48>, integers", Nearness::same_words, 0, false, true},
    {20, "wgmma<bf16, 64>, integers", Nearness::same_words, 0, false, true},
};

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

bool half_is_nan(std::uint32_t half, bool is_bf16) { return (half & 0x7fffu) > (is_bf16 ? 0x7f80u : 0x7c00u); }

bool same_half(std::uint32_t a, std::uint32_t b, bool is_bf16) { return a == b || (half_is_nan(a, is_bf16) && half_is_nan(b, is_bf16)); }

double ulps_between(float a, float b) {
  const auto place = [](float v) {
    const std::int64_t magnitude = std::bit_cast<std::uint32_t>(v) & 0x7fffffffu;
    return std::signbit(v) ? -magnitude : magnitude;
  };
  return std::abs(static_cast<double>(place(a) - place(b)));
}

bool near(const Case& c, std::uint32_t a, std::uint32_t b) {
  if (a == b) return true;
  if (c.nearness == Nearness::same_words) return false;
  if (c.nearness == Nearness::same_halves) return same_half(a & 0xffffu, b & 0xffffu, c.is_bf16) && same_half(a >> 16, b >> 16, c.is_bf16);
  const float x = float_of(a);
  const float y = float_of(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (c.nearness == Nearness::same_floats) return false;
  if (c.nearness == Nearness::ulps) return ulps_between(x, y) <= c.bound;
  return std::abs(static_cast<double>(x) - y) <= c.bound;
}

/// FNV-1a over all inputs: a recording of other inputs proves nothing.
std::uint64_t inputs_hash() {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const Case& c : all_cases()) {
    for (const std::uint32_t word : inputs_of(c)) hash = (hash ^ word) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace

std::span<const Case> all_cases() { return kCases; }

std::vector<std::uint32_t> inputs_of(const Case& c) {
  std::mt19937 random(1000u + static_cast<unsigned>(c.which));
  std::vector<std::uint32_t> words(kThreads * kWords);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  return words;
}

std::vector<std::uint32_t> blank_outputs() {
  std::vector<std::uint32_t> words(kOutWords, 0xffffffffu);
  words[kThreads * kWords] = 0;       // max, min, or, sum of the atomics
  words[kThreads * kWords + 2] = 0;
  words[kThreads * kWords + 3] = 0;
  return words;
}

std::string difference(const Case& c, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  if (a.size() != b.size()) return fmt::format("{}: {} words and {}", c.name, a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!near(c, a[i], b[i])) return fmt::format("{}: thread {}, word {}: {:#010x} and {:#010x}", c.name, i / kWords, i % kWords, a[i], b[i]);
  }
  return {};
}

void write_recording(const std::string& path, const Recording& recording) {
  std::ofstream out(path, std::ios::trunc);
  out << "w4moe intrinsics 1\nmachine " << recording.machine << "\ninputs " << fmt::format("{:016x}", inputs_hash()) << "\n";
  for (std::size_t i = 0; i < recording.outputs.size(); ++i) {
    out << "case " << all_cases()[i].which << " " << recording.outputs[i].size() << "\n";
    for (std::size_t w = 0; w < recording.outputs[i].size(); ++w) out << fmt::format("{:08x}", recording.outputs[i][w]) << (w % kWords == kWords - 1 ? "\n" : " ");
    out << "\n";
  }
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
}

Recording read_recording(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  Recording recording;
  if (!std::getline(in, line) || line != "w4moe intrinsics 1") throw std::runtime_error(path + " is no recording");
  std::getline(in, line);
  recording.machine = line.substr(line.find(' ') + 1);
  std::getline(in, line);
  if (line != fmt::format("inputs {:016x}", inputs_hash())) throw std::runtime_error(path + " was recorded with other inputs: record it anew");
  for (const Case& c : all_cases()) {
    std::string word;
    int which = -1;
    std::size_t count = 0;
    if (!(in >> word >> which >> count) || word != "case" || which != c.which) throw std::runtime_error(fmt::format("{}: no case {}", path, c.name));
    std::vector<std::uint32_t>& words = recording.outputs.emplace_back(count);
    for (std::uint32_t& w : words) in >> std::hex >> w;
    in >> std::dec;
  }
  if (!in) throw std::runtime_error(path + " ends early");
  return recording;
}

}  // namespace w4moe::conformance
