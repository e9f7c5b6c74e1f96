#include <catch2/catch.hpp>

#include "cache/kernel_cache.hpp"
#include "support.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;

namespace {

CacheOptions options_at(const std::string& root, std::vector<std::string> read_only = {}) {
  CacheOptions o;
  o.disk.root = root;
  o.read_only_dirs = std::move(read_only);
  return o;
}

void put_in(const std::string& root, const Entry& entry) {
  DiskOptions o;
  o.root = root;
  DiskStore(o).put(entry);
}

}  // namespace

TEST_CASE("layers are asked in order, and the counters say which one answered") {
  const TempDir dir;
  put_in(dir / "user", sample("user"));
  put_in(dir / "image1", sample("both"));
  put_in(dir / "image2", sample("both"));
  put_in(dir / "image2", sample("second"));
  KernelCache cache(options_at(dir / "user", {dir / "image1", dir / "image2"}));
  for (const char* id : {"user", "both", "second"}) CHECK(same(cache.get(name_of(id)), sample(id)));
  CHECK_FALSE(cache.get(name_of("none")));
  CHECK(cache.get(name_of("second")));
  const Stats stats = cache.stats();
  CHECK(stats.hit_disk == 1);
  CHECK(stats.hit_readonly == 2);
  CHECK(stats.hit_memory == 1);
  CHECK(stats.miss == 1);
  CHECK(cache.store().list().size() == 3);
  CHECK_FALSE(fs::exists(entry_path(dir / "user", name_of("both"))));  // no backfill unless asked
}

TEST_CASE("backfill copies from a read-only layer to the user's directory") {
  const TempDir dir;
  put_in(dir / "image", sample("a"));
  CacheOptions o = options_at(dir / "user", {dir / "image"});
  o.backfill = true;
  CHECK(KernelCache(o).get(name_of("a")));
  CHECK(read_text(entry_path(dir / "user", name_of("a"))) ==
        read_text(entry_path(dir / "image", name_of("a"))));
}

TEST_CASE("a damaged entry in one layer does not hide a good one below") {
  const TempDir dir;
  put_in(dir / "user", sample("a"));
  put_in(dir / "image", sample("a"));
  fs::resize_file(entry_path(dir / "user", name_of("a")), 77);
  KernelCache cache(options_at(dir / "user", {dir / "image"}));
  CHECK(same(cache.get(name_of("a")), sample("a")));
  CHECK(cache.stats().corrupt == 1);
}

TEST_CASE("W4MOE_CACHE: readonly reads the directory and writes nothing, off does neither") {
  const TempDir dir;
  put_in(dir / "user", sample("a"));
  const auto build = [](const char* id) { return [id] { return Result<Entry>(sample(id)); }; };
  const auto before = files_below(dir.path());
  CacheOptions o = options_at(dir / "user", {dir / "user"});
  o.mode = CacheMode::readonly;
  {
    KernelCache cache(o);
    CHECK(cache.get(name_of("a")));
    CHECK(cache.get_or_build(name_of("b"), build("b")));
    CHECK(cache.get(name_of("b")));
  }
  o.mode = CacheMode::off;
  {
    KernelCache cache(o);
    CHECK_FALSE(cache.get(name_of("a")));
    CHECK(cache.get_or_build(name_of("a"), build("a")));
    CHECK(cache.get(name_of("a")));
  }
  CHECK(files_below(dir.path()) == before);
}

TEST_CASE("remove takes an entry from memory and disk") {
  const TempDir dir;
  KernelCache cache(options_at(dir / "user"));
  cache.store().put(sample("a"));
  CHECK(cache.store().remove(name_of("a")));
  CHECK_FALSE(cache.get(name_of("a")));
  CHECK_FALSE(fs::exists(entry_path(dir / "user", name_of("a"))));
}

TEST_CASE("closing adds the statistics to those on disk, each count once") {
  const TempDir dir;
  for (int i = 0; i < 2; ++i) {
    KernelCache cache(options_at(dir / "user"));
    REQUIRE(cache.get_or_build(name_of("a"), [] { return Result<Entry>(sample("a")); }));
    cache.flush_stats();
  }
  DiskOptions o;
  o.root = dir / "user";
  DiskStore store(o);
  const Stats total = read_total_stats(store);
  CHECK(total.compile == 1);
  CHECK(total.miss == 1);
  CHECK(total.hit_disk == 1);
  CHECK(total.put == 1);
}

TEST_CASE("C06: no user and no home: kernels are built and kept in memory, nothing is written") {
  const TempDir dir;
  const int rc = in_child([&] {
    if (!become_nobody() || ::chdir("/tmp") != 0) return 10;
    for (const char* home : {"/", "/nonexistent"}) {
      const Location location = resolve_location({}, [&](const char* name) -> std::optional<std::string> {
        return std::string(name) == "HOME" ? std::optional<std::string>(home) : std::nullopt;
      });
      if (!location.path.empty() || location.warning.empty()) return 11;
      KernelCache cache(options_at(location.path));
      const auto built = cache.get_or_build(name_of("a"), [] { return Result<Entry>(sample("a")); });
      if (!built || !cache.get(name_of("a"))) return 12;
      if (fs::exists("/.cache") || fs::exists("/w4moe") || fs::exists(std::string(home) + "/.cache")) return 13;
    }
    return 0;
  });
  CHECK(rc == 0);
}
