#include "generator/manifest/json_source.hpp"

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "generator/problem/errors.hpp"

namespace w4moe {
namespace {

/// Reads characters for the parser and counts the lines that it has consumed.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

/// The parser's own words without its prefix of exception name and position.
std::string reason_of(const std::string& text) {
  const std::size_t column = text.find("column ");
  const std::size_t colon = text.find(": ", column == std::string::npos ? 0 : column);
  if (column != std::string::npos && colon != std::string::npos) return text.substr(colon + 2);
  const std::size_t bracket = text.find("] ");
  return bracket == std::string::npos ? text : text.substr(bracket + 2);
}

/// Builds the document while it follows the parser. The library's own builder keeps the last of two equal fields, knows no limit of
/// depth, and, where it reports to a callback, takes quadratic time over a long array.
class Builder : public nlohmann::json_sax<Json> {
 public:
  /// Stops at the pointer `wanted` if there is one.
  explicit Builder(const int* line, const std::string* wanted = nullptr) : line_(line), wanted_(wanted) {}

  Json take() { return std::move(root_); }
  int stop_line() const { return stop_line_; }              ///< line of the fault, or of what was looked for
  const std::string& reason() const { return reason_; }     ///< "" where what was looked for was found

  bool null() override { return add(Json(nullptr)) != nullptr; }
  bool boolean(bool v) override { return add(Json(v)) != nullptr; }
  bool number_integer(number_integer_t v) override { return add(Json(v)) != nullptr; }
  bool number_unsigned(number_unsigned_t v) override { return add(Json(v)) != nullptr; }
  bool number_float(number_float_t v, const string_t&) override { return add(Json(v)) != nullptr; }
  bool string(string_t& v) override { return add(Json(std::move(v))) != nullptr; }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Frame& frame = frames_.back();
    frame.key = std::move(name);
    if (frame.value->contains(frame.key)) return stop(fmt::format("{}: given twice", pointer()));
    return !is_wanted();
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return stop(reason_of(error.what()));
  }

 private:
  struct Frame {
    Json* value;      ///< the open object or array
    std::string key;  ///< of an object: the field whose value comes next or came last
  };

  bool stop(std::string reason) {
    stop_line_ = *line_;
    reason_ = std::move(reason);
    return false;
  }

  /// Puts a value where it belongs; null where the parse ends here.
  Json* add(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Frame& frame = frames_.back();
    if (frame.value->is_object()) return &((*frame.value)[frame.key] = std::move(value));
    frame.value->push_back(std::move(value));
    return is_wanted() ? nullptr : &frame.value->back();
  }

  bool open(Json empty) {
    if (frames_.size() >= static_cast<std::size_t>(kMaxJsonDepth)) return stop(fmt::format("nested deeper than {}", kMaxJsonDepth));
    Json* value = add(std::move(empty));
    if (value == nullptr) return false;
    frames_.push_back(Frame{value, {}});
    return true;
  }

  bool close() {
    frames_.pop_back();
    return true;
  }

  bool is_wanted() {
    if (wanted_ == nullptr || pointer() != *wanted_) return false;
    stop({});
    return true;
  }

  std::string pointer() const {
    std::string text;
    for (const Frame& f : frames_) text = pointer_to(text, f.value->is_array() ? std::to_string(f.value->size() - 1) : f.key);
    return text;
  }

  const int* line_;
  const std::string* wanted_;
  Json root_;
  std::vector<Frame> frames_;
  int stop_line_ = 0;
  std::string reason_;
};

bool parse_with(std::string_view text, Builder& builder, int* line) {
  const CountingIterator begin(text.data(), line);
  const CountingIterator end(text.data() + text.size(), line);
  return Json::sax_parse(begin, end, &builder);
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view file_name) {
  int line = 1;
  Builder builder(&line);
  if (parse_with(text, builder, &line)) return builder.take();
  return invalid_argument("{}:{}: {}", file_name, builder.stop_line(), builder.reason());
}

int line_of(std::string_view text, const std::string& pointer) {
  int line = 1;
  Builder builder(&line, &pointer);
  const bool found = !parse_with(text, builder, &line) && builder.reason().empty();
  return found ? builder.stop_line() : 0;
}

std::string pointer_to(const std::string& parent, std::string_view key) {
  std::string text = parent + "/";
  for (const char c : key) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace w4moe
