// Cache keys: labelled, length-prefixed fields -> one text -> SHA-256. The text is kept in each entry, so the key of an
// entry can be recomputed from its own bytes, and two keys can be compared by people.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace w4moe::cache {

/// A 256-bit content key.
struct Key {
  std::array<std::uint8_t, 32> bytes{};

  std::string hex() const;        ///< 64 lower-case hex digits
  std::string short_hex() const;  ///< the first 12 of them, for messages
  static std::optional<Key> from_hex(std::string_view hex);
  /// The key of a key text, as KeyBuilder builds it.
  static Key of_text(std::string_view text);

  auto operator<=>(const Key&) const = default;
};

/// Which entry of a store: the content key, and which compiler build made it ("12.4.131"). The compiler is not part of
/// the key, so that a process without a compiler can find what another one built: an empty `builder` asks for any
/// build, the highest version first.
struct EntryName {
  Key key;
  std::string builder;

  EntryName(const Key& k, std::string b = {}) : key(k), builder(std::move(b)) {}
  auto operator<=>(const EntryName&) const = default;
};

/// A builder is "" or up to 32 characters of [0-9A-Za-z._+], since it becomes part of a file name.
bool valid_builder(std::string_view builder);
/// Orders dotted versions by number: "12.10.1" after "12.9.3".
bool builder_less(std::string_view a, std::string_view b);

/// The label of a key field: lower-case letters, digits and '_', checked by the compiler.
class KeyLabel {
 public:
  consteval KeyLabel(const char* text) : text_(text) {
    if (text_.empty()) throw "a key label must not be empty";
    for (const char c : text_)
      if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') throw "key label: [a-z0-9_] only";
  }
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

/// Collects the fields of a key, in order. A label may repeat ("option"); order and number of fields matter.
class KeyBuilder {
 public:
  KeyBuilder& field(KeyLabel label, std::string_view value);

  Key key() const { return Key::of_text(text_); }
  /// What is hashed: a line "label[value bytes]=value" per field.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct KeyField {
  std::string label;
  std::string value;
  bool operator==(const KeyField&) const = default;
};

/// The fields of a key text; nothing if the text is not one.
std::optional<std::vector<KeyField>> parse_key_text(std::string_view text);

/// One difference between two key texts. A missing side means that the field is only in the other.
struct KeyDifference {
  std::string label;  ///< "arch", or "option#3" for the third of several
  std::optional<std::string> left;
  std::optional<std::string> right;
};

/// What differs between two key texts, field by field; empty when the keys are equal. A text that does not parse is
/// compared as one field "text".
std::vector<KeyDifference> diff_key_texts(std::string_view left, std::string_view right);

}  // namespace w4moe::cache
