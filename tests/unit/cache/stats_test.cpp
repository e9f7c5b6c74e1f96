#include "cache/stats.hpp"

#include <catch2/catch.hpp>

#include "support.hpp"

using namespace w4moe::cache;
using namespace w4moe::cache::test;

TEST_CASE("statistics survive JSON, and every counter takes part") {
  Stats stats;
  std::uint64_t n = 1;
  for (const StatsField& field : kStatsFields) stats.*field.value = n++;
  static_assert(sizeof(Stats) == kStatsFields.size() * sizeof(std::uint64_t));  // no counter without a name
  CHECK(stats_from_json(stats_to_json(stats)) == stats);
  Stats twice = stats;
  twice += stats;
  for (const StatsField& field : kStatsFields) CHECK(twice.*field.value == 2 * (stats.*field.value));
}

TEST_CASE("damaged totals count as nothing rather than as an error") {
  for (const char* text : {"", "{", "[]", "7", "{\"miss\":-1}", "{\"miss\":\"x\"}", "{\"other\":1}", "\xff"})
    CHECK(stats_from_json(text) == Stats{});
  CHECK(stats_from_json(R"({"miss":3,"new_counter":9})").miss == 3);
}

TEST_CASE("processes add their statistics up on disk") {
  const TempDir dir;
  DiskOptions options;
  options.root = dir / "cache";
  {
    DiskStore store(options);
    CHECK_FALSE(merge_stats(store, Stats{}));  // no directory yet, and none is made for this
    store.put(sample("a"));
  }
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(spawn([&] {
      DiskStore store(options);
      Stats mine;
      mine.miss = 1;
      mine.compile_ms = 100;
      for (int n = 0; n < 5; ++n)
        if (!merge_stats(store, mine)) return 1;
      return 0;
    }));
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  DiskStore store(options);
  CHECK(read_total_stats(store).miss == 40);
  CHECK(read_total_stats(store).compile_ms == 4000);
  write_text(options.root + "/v1/stats/totals.json", "garbage");
  CHECK(read_total_stats(store) == Stats{});
}
