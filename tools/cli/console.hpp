// The one place that prints: results to stdout, talk to stderr.
#pragma once

#include <string>
#include <vector>

#include "w4moe/error.hpp"

namespace w4moe::cli {

// Exit codes, as scripts know them.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kSomeFailed = 3;
inline constexpr int kUnsupported = 4;
inline constexpr int kToolchainMissing = 5;
inline constexpr int kDamaged = 6;
inline constexpr int kInterrupted = 130;

/// The one mapping from errors to exit codes.
int exit_code(ErrorCode code);

/// "invalid_argument", "unsupported", ...
const char* code_name(ErrorCode code);

/// Where a verb talks. Thread-safe, but for set-up.
class Console {
 public:
  /// verbosity: -1 errors only, 0 warnings too, 1 what is being done too, 2 everything.
  void set_up(bool json, int verbosity, const std::string& color);

  bool json() const { return json_; }
  int verbosity() const { return verbosity_; }
  bool color() const { return color_; }
  /// A progress bar may be drawn.
  bool bar() const { return bar_ && verbosity_ == 0; }

  void error(const std::string& message);
  void warning(const std::string& message);
  void note(const std::string& message);   ///< shown by default
  void info(const std::string& message);   ///< with -v
  void debug(const std::string& message);  ///< with -vv
  /// Width of the terminal behind stderr, at least 10; 80 where it does not tell.
  int columns() const;
  /// Draws a line of progress over the one before, which other messages push away; empty takes it away.
  void draw(const std::string& text);

  /// Warnings so far, for the JSON twin.
  std::vector<std::string> warnings() const;

  /// The result. Once; nothing else goes to stdout.
  void result(const std::string& text);

  /// Flushes stdout: an error where the result could not be written.
  Status flush();

 private:
  void line(const char* color, const char* label, const std::string& message);

  bool json_ = false;
  bool color_ = false;
  bool bar_ = false;
  bool drawn_ = false;
  int verbosity_ = 0;
  std::vector<std::string> warnings_;
};

/// The JSON document of a verb that failed.
std::string error_document(const std::string& verb, const Error& error, int exit_code);

}  // namespace w4moe::cli
