// Where messages go: the caller's callback, and what W4MOE_LOG asks for.
#pragma once

#include <memory>

#include "runtime/config.hpp"

namespace w4moe {

/// Thread-safe. Copies share their sinks.
class Logger {
 public:
  Logger() = default;
  /// An unwritable log file is reported to the callback and otherwise left out.
  Logger(LogFn callback, const LogSettings& settings);

  void debug(const std::string& message) const { write(LogLevel::debug, message); }
  void info(const std::string& message) const { write(LogLevel::info, message); }
  void warning(const std::string& message) const { write(LogLevel::warning, message); }

 private:
  void write(LogLevel level, const std::string& message) const;

  LogFn callback_;
  struct Sink;
  std::shared_ptr<Sink> sink_;
};

}  // namespace w4moe
