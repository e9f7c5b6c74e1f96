#include "cache/key.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#include "cache/sha256.hpp"

namespace w4moe::cache {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the leading number of a version, or nothing.
std::string_view take_digits(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  std::string_view digits(text.data(), static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

// Fields by label, "label#2" for a repeated one, so that a difference names which of several options it is.
std::map<std::string, std::string> by_label(std::string_view text) {
  std::map<std::string, std::string> named;
  const auto fields = parse_key_text(text);
  if (!fields) return {{"text", std::string(text)}};
  std::map<std::string, int> seen;
  for (const KeyField& field : *fields) {
    const int n = ++seen[field.label];
    named[n == 1 ? field.label : field.label + "#" + std::to_string(n)] = field.value;
  }
  return named;
}

}  // namespace

std::string Key::hex() const {
  std::string out;
  out.reserve(64);
  for (const std::uint8_t byte : bytes) {
    out.push_back(kHexDigits[byte >> 4]);
    out.push_back(kHexDigits[byte & 15]);
  }
  return out;
}

std::string Key::short_hex() const { return hex().substr(0, 12); }

std::optional<Key> Key::from_hex(std::string_view hex) {
  if (hex.size() != 64) return std::nullopt;
  Key key;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t digit = kHexDigits.find(hex[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    key.bytes[i / 2] = static_cast<std::uint8_t>(key.bytes[i / 2] << 4 | digit);
  }
  return key;
}

Key Key::of_text(std::string_view text) { return Key{sha256(text)}; }

bool valid_builder(std::string_view builder) {
  return builder.size() <= 32 && std::all_of(builder.begin(), builder.end(), [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
                  c == '+';
         });
}

bool builder_less(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view na = take_digits(a), nb = take_digits(b);
    if (na.size() != nb.size()) return na.size() < nb.size();
    if (na != nb) return na < nb;
    if (a.empty() || b.empty()) break;
    if (a.front() != b.front()) return a.front() < b.front();
    if (!is_digit(a.front())) a.remove_prefix(1), b.remove_prefix(1);
  }
  return a.empty() && !b.empty();
}

KeyBuilder& KeyBuilder::field(KeyLabel label, std::string_view value) {
  text_.append(label.text()).append("[").append(std::to_string(value.size())).append("]=");
  text_.append(value).append("\n");
  return *this;
}

std::optional<std::vector<KeyField>> parse_key_text(std::string_view text) {
  std::vector<KeyField> fields;
  while (!text.empty()) {
    const std::size_t open = text.find('[');
    if (open == std::string_view::npos || open == 0) return std::nullopt;
    std::size_t value_bytes = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + open + 1, end, value_bytes);
    if (error != std::errc() || end - stop < 3 || stop[0] != ']' || stop[1] != '=') return std::nullopt;
    const std::string_view rest(stop + 2, static_cast<std::size_t>(end - stop - 2));
    if (value_bytes >= rest.size() || rest[value_bytes] != '\n') return std::nullopt;
    fields.push_back({std::string(text.substr(0, open)), std::string(rest.substr(0, value_bytes))});
    text = rest.substr(value_bytes + 1);
  }
  return fields;
}

std::vector<KeyDifference> diff_key_texts(std::string_view left, std::string_view right) {
  const auto a = by_label(left), b = by_label(right);
  std::vector<KeyDifference> out;
  for (const auto& [label, value] : a) {
    const auto other = b.find(label);
    if (other == b.end())
      out.push_back({label, value, std::nullopt});
    else if (other->second != value)
      out.push_back({label, value, other->second});
  }
  for (const auto& [label, value] : b)
    if (!a.contains(label)) out.push_back({label, std::nullopt, value});
  return out;
}

}  // namespace w4moe::cache
