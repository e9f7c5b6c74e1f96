#include "runtime/build/missing_kernel.hpp"

#include <fmt/format.h>

#include <optional>

namespace w4moe {
namespace {

constexpr std::size_t kMaxEntriesRead = 512;
constexpr std::size_t kMaxValueShown = 60;

/// The value if it is short, else enough to recognise it.
std::string shown(const std::string& value) {
  const std::size_t line = value.find('\n');
  if (line == std::string::npos && value.size() <= kMaxValueShown) return value;
  return fmt::format("{}... ({} bytes)", value.substr(0, std::min(line, kMaxValueShown)), value.size());
}

/// Two texts that differ in one line are shown by that line: the sources in a key are long.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::size_t begin_a = 0;
  std::size_t begin_b = 0;
  while (begin_a < a.size() && begin_b < b.size()) {
    const std::string line_a = a.substr(begin_a, a.find('\n', begin_a) - begin_a);
    const std::string line_b = b.substr(begin_b, b.find('\n', begin_b) - begin_b);
    if (line_a != line_b) return {line_a, line_b};
    begin_a += line_a.size() + 1;
    begin_b += line_b.size() + 1;
  }
  return {begin_a < a.size() ? a.substr(begin_a) : "nothing", begin_b < b.size() ? b.substr(begin_b) : "nothing"};
}

std::string describe(const cache::KeyDifference& difference) {
  if (!difference.left) return fmt::format("{}: only there ({})", difference.label, shown(*difference.right));
  if (!difference.right) return fmt::format("{}: only here ({})", difference.label, shown(*difference.left));
  const auto [here, there] = first_difference(*difference.left, *difference.right);
  return fmt::format("{}: '{}' is wanted, '{}' is there", difference.label, shown(here), shown(there));
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
    if (best && best->size() <= differences.size()) continue;
    best = std::move(differences);
    best_name = stored.name.key.short_hex();
  }
  if (!best) return "the cache is empty";
  std::string text = fmt::format("the nearest entry, {}, differs in", best_name);
  for (const cache::KeyDifference& difference : *best) text += fmt::format("\n    {}", describe(difference));
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
