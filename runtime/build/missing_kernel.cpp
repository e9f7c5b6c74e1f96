#include "runtime/build/missing_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace w4moe {
namespace {

constexpr std::size_t kMaxEntriesRead = 512;
constexpr std::size_t kMaxValueShown = 60;
constexpr std::size_t kMaxLinesShown = 6;

/// The value if it is short, else enough to recognise it.
std::string shown(const std::string& value) {
  const std::size_t line = value.find('\n');
  if (line == std::string::npos && value.size() <= kMaxValueShown) return value;
  return fmt::format("{}... ({} bytes)", value.substr(0, std::min(line, kMaxValueShown)), value.size());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    // A comment says again what the code below it says.
    if (text.compare(begin, 2, "//") != 0) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// The lines of two long values (the sources in a key) that differ, pairwise where both have as many lines.
std::vector<std::pair<std::string, std::string>> differing_lines(const cache::KeyDifference& difference) {
  const std::vector<std::string> here = lines_of(difference.left.value_or(""));
  const std::vector<std::string> there = lines_of(difference.right.value_or(""));
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::size_t i = 0; i < std::max(here.size(), there.size()); ++i) {
    const std::string a = i < here.size() ? here[i] : "nothing";
    const std::string b = i < there.size() ? there[i] : "nothing";
    if (a != b) pairs.emplace_back(a, b);
  }
  return pairs;
}

std::string unindented(const std::string& line) { return line.substr(std::min(line.find_first_not_of(' '), line.size())); }

std::string describe(const cache::KeyDifference& difference) {
  if (!difference.left) return fmt::format("\n    {}: only there ({})", difference.label, shown(*difference.right));
  if (!difference.right) return fmt::format("\n    {}: only here ({})", difference.label, shown(*difference.left));
  std::string text;
  std::size_t told = 0;
  const auto pairs = differing_lines(difference);
  for (const auto& [here, there] : pairs) {
    if (told++ == kMaxLinesShown) {
      text += fmt::format("\n    {}: and {} more lines", difference.label, pairs.size() - kMaxLinesShown);
      break;
    }
    text += fmt::format("\n    {}: '{}' is wanted, '{}' is there", difference.label, unindented(here), unindented(there));
  }
  return text;
}

/// Fewer fields first, then fewer lines in them.
std::pair<std::size_t, std::size_t> distance(const std::vector<cache::KeyDifference>& differences) {
  std::size_t lines = 0;
  for (const cache::KeyDifference& difference : differences) lines += differing_lines(difference).size();
  return {differences.size(), lines};
}

}  // namespace

std::string nearest_entry(cache::Store& store, const std::string& key_text) {
  std::optional<std::vector<cache::KeyDifference>> best;
  std::string best_name;
  std::size_t read = 0;
  for (const cache::StoredEntry& stored : store.list()) {
    if (read++ == kMaxEntriesRead) break;
    const std::optional<cache::Entry> entry = store.get(stored.name);
    if (!entry) continue;
    std::vector<cache::KeyDifference> differences = cache::diff_key_texts(key_text, entry->key_text);
    if (best && distance(*best) <= distance(differences)) continue;
    best = std::move(differences);
    best_name = stored.name.key.short_hex();
  }
  if (!best) return "the cache is empty";
  std::string text = fmt::format("the nearest entry, {}, differs in", best_name);
  for (const cache::KeyDifference& difference : *best) text += describe(difference);
  return text;
}

std::string key_lines(const std::string& key_text) {
  std::string text;
  for (const cache::KeyField& field : cache::parse_key_text(key_text).value_or(std::vector<cache::KeyField>{})) {
    text += fmt::format("\n    {} = {}", field.label, shown(field.value));
  }
  return text;
}

}  // namespace w4moe
