// Random damage to a text, for fuzzing parsers inside unit tests: the same seed gives the same texts.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace w4moe::test {

/// The text after one to three random edits: flipped, removed, repeated and moved bytes, and words that parsers stumble over.
inline std::string mutate(std::string text, std::mt19937& rng, const std::vector<std::string>& words) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(rng() % n); };
  for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = 1 + below(12);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(rng());
        break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(below(text.size() + 1), length)); break;
      case 3: text.insert(at, words[below(words.size())]); break;
      case 4: text.resize(at); break;
      default: {  // replace a run by a word: more often a value that is still in its place
        const std::size_t from = text.find_first_of("0123456789\"", at);
        if (from == std::string::npos) break;
        const std::size_t to = text.find_first_of(",}]", from);
        if (to != std::string::npos) text.replace(from, to - from, words[below(words.size())]);
      }
    }
  }
  return text;
}

}  // namespace w4moe::test
