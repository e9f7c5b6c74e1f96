// Warnings of a store: each kind once, so that a full disk does not fill a log.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "cache/store.hpp"

namespace w4moe::cache {

/// Thread-safe.
class Warner {
 public:
  explicit Warner(WarningFn fn) : fn_(std::move(fn)) {}

  void once(const std::string& kind, const std::string& text) {
    {
      const std::lock_guard guard(mutex_);
      if (!given_.insert(kind).second) return;
    }
    if (fn_) fn_(text);
  }

 private:
  WarningFn fn_;
  std::mutex mutex_;
  std::set<std::string> given_;
};

}  // namespace w4moe::cache
