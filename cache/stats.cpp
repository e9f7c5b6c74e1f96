#include "cache/stats.hpp"

#include <nlohmann/json.hpp>

namespace w4moe::cache {

Stats& Stats::operator+=(const Stats& other) {
  for (const StatsField& field : kStatsFields) this->*field.value += other.*field.value;
  return *this;
}

std::string stats_to_json(const Stats& stats) {
  nlohmann::ordered_json json;
  for (const StatsField& field : kStatsFields) json[std::string(field.name)] = stats.*field.value;
  return json.dump();
}

Stats stats_from_json(std::string_view text) {
  Stats stats;
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return stats;
  for (const StatsField& field : kStatsFields) {
    const auto it = json.find(std::string(field.name));
    if (it != json.end() && it->is_number_unsigned()) stats.*field.value = it->get<std::uint64_t>();
  }
  return stats;
}

Stats SharedStats::take_unsaved() {
  const std::lock_guard guard(mutex_);
  Stats unsaved = stats_;
  for (const StatsField& field : kStatsFields) unsaved.*field.value -= saved_.*field.value;
  saved_ = stats_;
  return unsaved;
}

}  // namespace w4moe::cache
