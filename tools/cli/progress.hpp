// Progress of a build: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "tools/cli/console.hpp"

namespace w4moe::cli {

class Progress {
 public:
  Progress(Console& console, std::string what) : console_(console), what_(std::move(what)) {}
  ~Progress() { clear(); }

  /// `item` was done, as number `done` of `total`.
  void step(int done, int total, const std::string& item);
  /// Takes the bar away, for a message or for good.
  void clear();

 private:
  Console& console_;
  const std::string what_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int told_ = 0;  ///< tenths that have had their line
};

}  // namespace w4moe::cli
