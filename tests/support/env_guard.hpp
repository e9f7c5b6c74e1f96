// Environment variables that a test sets, and that the next test must not see.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace w4moe::test {

/// Sets (or, without a value, unsets) one variable, and restores it when the object dies.
class EnvGuard {
 public:
  EnvGuard(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  ~EnvGuard() { set(before_); }

  EnvGuard(const EnvGuard&) = delete;
  EnvGuard& operator=(const EnvGuard&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name_.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }

  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace w4moe::test
