// The cases of intrinsics.cuh: what goes in, and how near two machines' words must be.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace w4moe::conformance {

enum class Nearness {
  same_words,
  same_halves,    ///< two 16-bit floats a word: any NaN counts as any other
  same_floats,    ///< any NaN counts as any other
  ulps,           ///< floats within `bound` units in the last place
  absolute,       ///< floats within `bound`
};

struct Case {
  int which;                ///< of intrinsics.cuh
  const char* name;
  Nearness nearness;
  double bound = 0;
  bool is_bf16 = false;     ///< same_halves: bf16 rather than fp16
  bool needs_sm90 = false;
};

inline constexpr int kThreads = 128;
inline constexpr int kWords = 16;                 ///< of each thread, in and out
inline constexpr int kTailWords = 4;              ///< behind them
inline constexpr int kOutWords = kThreads * kWords + kTailWords;
inline constexpr long long kSharedBytes = 8192 + 64;

std::span<const Case> all_cases();

/// The same bits everywhere.
std::vector<std::uint32_t> inputs_of(const Case& c);
/// What the output holds before.
std::vector<std::uint32_t> blank_outputs();

/// What tells two outputs apart, or an empty string.
std::string difference(const Case& c, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b);

/// A machine's outputs, one list a case in the order of all_cases(); empty where it does not run the case.
struct Recording {
  std::string machine;
  std::vector<std::vector<std::uint32_t>> outputs;
};

void write_recording(const std::string& path, const Recording& recording);
/// Throws std::runtime_error for a file that is not one, or is of other cases or inputs.
Recording read_recording(const std::string& path);

}  // namespace w4moe::conformance
