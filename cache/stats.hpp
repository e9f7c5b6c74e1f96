// Counters of the cache: in the object always, added to the totals on disk when the cache is closed.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace w4moe::cache {

struct Stats {
  std::uint64_t hit_memory = 0;
  std::uint64_t hit_disk = 0;
  std::uint64_t hit_readonly = 0;
  std::uint64_t miss = 0;
  std::uint64_t compile = 0;
  std::uint64_t compile_failed = 0;
  std::uint64_t compile_ms = 0;
  std::uint64_t put = 0;
  std::uint64_t put_failed = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t evicted = 0;
  std::uint64_t lock_wait_ms = 0;

  Stats& operator+=(const Stats& other);
  bool operator==(const Stats&) const = default;
};

struct StatsField {
  std::string_view name;
  std::uint64_t Stats::*value;
};

/// Every counter with its name, in the order in which they are shown.
inline constexpr std::array<StatsField, 12> kStatsFields = {{
    {"hit_memory", &Stats::hit_memory},
    {"hit_disk", &Stats::hit_disk},
    {"hit_readonly", &Stats::hit_readonly},
    {"miss", &Stats::miss},
    {"compile", &Stats::compile},
    {"compile_failed", &Stats::compile_failed},
    {"compile_ms", &Stats::compile_ms},
    {"put", &Stats::put},
    {"put_failed", &Stats::put_failed},
    {"corrupt", &Stats::corrupt},
    {"evicted", &Stats::evicted},
    {"lock_wait_ms", &Stats::lock_wait_ms},
}};

/// One line of JSON, {"hit_memory":0,...}.
std::string stats_to_json(const Stats& stats);
/// The counters in a JSON text. Missing, unknown or malformed parts count as 0: totals are never worth an error.
Stats stats_from_json(std::string_view text);

/// Stats that several threads and layers add to.
class SharedStats {
 public:
  void add(std::uint64_t Stats::*counter, std::uint64_t amount = 1) {
    const std::lock_guard guard(mutex_);
    stats_.*counter += amount;
  }
  Stats read() const {
    const std::lock_guard guard(mutex_);
    return stats_;
  }
  /// What was counted since the last take.
  Stats take_unsaved();

 private:
  mutable std::mutex mutex_;
  Stats stats_;
  Stats saved_;
};

}  // namespace w4moe::cache
