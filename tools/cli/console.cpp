#include "tools/cli/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include <nlohmann/json.hpp>

namespace w4moe::cli {
namespace {

constexpr const char* kRed = "\033[1;31m";
constexpr const char* kYellow = "\033[1;33m";
constexpr const char* kPlain = "\033[0m";
constexpr const char* kEraseLine = "\r\033[K";

std::mutex& stderr_mutex() {
  static std::mutex mutex;
  return mutex;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

}  // namespace

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return kUsage;
    case ErrorCode::unsupported: return kUnsupported;
    case ErrorCode::toolchain_missing: return kToolchainMissing;
    case ErrorCode::corrupt: return kDamaged;
    case ErrorCode::compile_failed:
    case ErrorCode::io:
    case ErrorCode::driver:
    case ErrorCode::not_prepared:
    case ErrorCode::internal: return kFailed;
  }
  return kFailed;
}

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::toolchain_missing: return "toolchain_missing";
    case ErrorCode::compile_failed: return "compile_failed";
    case ErrorCode::io: return "io";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::driver: return "driver";
    case ErrorCode::not_prepared: return "not_prepared";
    case ErrorCode::internal: return "internal";
  }
  return "internal";
}

void Console::set_up(bool json, int verbosity, const std::string& color) {
  json_ = json;
  verbosity_ = verbosity;
  bar_ = ::isatty(STDERR_FILENO) == 1;
  color_ = color == "always" || (color == "auto" && bar_ && !is_set("NO_COLOR"));
}

void Console::line(const char* color, const char* label, const std::string& message) {
  std::string text;
  if (*label != '\0') text += color_ ? std::string(color) + label + kPlain + ": " : std::string(label) + ": ";
  text += message;
  text += '\n';
  const std::lock_guard guard(stderr_mutex());
  if (std::exchange(drawn_, false)) std::fputs(kEraseLine, stderr);
  std::fputs(text.c_str(), stderr);
}

void Console::error(const std::string& message) { line(kRed, "error", message); }

void Console::warning(const std::string& message) {
  {
    const std::lock_guard guard(stderr_mutex());
    warnings_.push_back(message);
  }
  if (verbosity_ >= 0) line(kYellow, "warning", message);
}

void Console::note(const std::string& message) {
  if (verbosity_ >= 0) line("", "", message);
}
void Console::info(const std::string& message) {
  if (verbosity_ >= 1) line("", "", message);
}
void Console::debug(const std::string& message) {
  if (verbosity_ >= 2) line("", "", message);
}

int Console::columns() const {
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<int>(size.ws_col, 10);
}

void Console::draw(const std::string& text) {
  const std::lock_guard guard(stderr_mutex());
  if (text.empty() && !drawn_) return;
  std::fputs((kEraseLine + text).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = !text.empty();
}

std::vector<std::string> Console::warnings() const {
  const std::lock_guard guard(stderr_mutex());
  return warnings_;
}

void Console::result(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Status Console::flush() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return Error{ErrorCode::io, std::string("cannot write the result to standard output: ") + std::strerror(errno)};
}

std::string error_document(const std::string& verb, const Error& error, int exit_code) {
  const nlohmann::ordered_json document = {
      {"schema", "w4moe.error/1"},
      {"verb", verb},
      {"error", {{"code", code_name(error.code)}, {"message", error.message}}},
      {"exit_code", exit_code},
  };
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace w4moe::cli
