#include "cache/single_flight.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "cache/kernel_cache.hpp"
#include "support.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;
using namespace std::chrono_literals;

namespace {

Error compile_error() { return Error{ErrorCode::compile_failed, "nvrtc: syntax error"}; }

CacheOptions options_at(const std::string& root) {
  CacheOptions o;
  o.disk.root = root;
  return o;
}

// Starts `n` threads at once and gives their results.
template <class Body>
auto on_threads(int n, Body body) {
  std::vector<std::optional<Result<Entry>>> results(static_cast<std::size_t>(n));
  std::atomic<bool> go = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i)
    threads.emplace_back([&, i] {
      while (!go) std::this_thread::yield();
      results[static_cast<std::size_t>(i)] = body(i);
    });
  go = true;
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace

TEST_CASE("C01: 32 threads that ask for one kernel build it once") {
  const TempDir dir;
  for (const std::string& root : {std::string(), dir / "cache"}) {  // memory only, and on disk
    KernelCache cache(options_at(root));
    std::atomic<int> builds = 0;
    const auto results = on_threads(32, [&](int) {
      return cache.get_or_build(name_of("a"), [&]() -> Result<Entry> {
        ++builds;
        std::this_thread::sleep_for(20ms);
        return sample("a");
      });
    });
    CHECK(builds == 1);
    for (const auto& result : results) {
      REQUIRE(result->ok());
      CHECK((*result)->payload == results[0]->value().payload);  // one copy in memory
    }
    CHECK(cache.stats().compile == 1);
    CHECK(cache.stats().miss == 1);
  }
}

TEST_CASE("different kernels are built at the same time, also those that share a lock file") {
  const TempDir dir;
  KernelCache cache(options_at(dir / "cache"));
  std::vector<std::string> ids;  // two of them in one shard
  for (int i = 0; ids.size() < 2; ++i)
    if (const std::string id = std::to_string(i); name_of(id).key.bytes[0] == 0x5a) ids.push_back(id);
  std::atomic<int> inside = 0;
  const auto results = on_threads(2, [&](int i) {
    const std::string& id = ids[static_cast<std::size_t>(i)];
    return cache.get_or_build(name_of(id), [&]() -> Result<Entry> {
      ++inside;
      for (int n = 0; n < 2000 && inside < 2; ++n) std::this_thread::sleep_for(5ms);
      return inside == 2 ? Result<Entry>(sample(id)) : compile_error();
    });
  });
  for (const auto& result : results) CHECK(result->ok());
}

TEST_CASE(
    "C01: a failed compile reaches every waiter with its error and is not stored; the next call tries again") {
  const TempDir dir;
  KernelCache cache(options_at(dir / "cache"));
  std::atomic<int> builds = 0;
  const auto results = on_threads(16, [&](int) {
    return cache.get_or_build(name_of("a"), [&]() -> Result<Entry> {
      ++builds;
      std::this_thread::sleep_for(50ms);
      return compile_error();
    });
  });
  for (const auto& result : results) {
    REQUIRE_FALSE(result->ok());
    CHECK(result->error().code == ErrorCode::compile_failed);
    CHECK(result->error().message == "nvrtc: syntax error");
  }
  CHECK(builds < 16);
  CHECK(cache.stats().compile_failed == static_cast<std::uint64_t>(builds));
  CHECK(cache.store().list().empty());
  CHECK(cache.get_or_build(name_of("a"), [] { return Result<Entry>(sample("a")); }));
}

TEST_CASE("an exception in a build is an error with its text, and nobody waits for ever") {
  KernelCache cache(options_at(""));
  const auto thrown =
      cache.get_or_build(name_of("a"), []() -> Result<Entry> { throw std::runtime_error("boom"); });
  CHECK(thrown.error().code == ErrorCode::internal);
  CHECK(thrown.error().message.find("boom") != std::string::npos);
  CHECK_FALSE(cache.get_or_build(name_of("a"), []() -> Result<Entry> { throw 5; }));
  CHECK(cache.get_or_build(name_of("a"), [] { return Result<Entry>(sample("a")); }));
}

TEST_CASE("an entry that is not the one asked for is refused and not stored") {
  const TempDir dir;
  KernelCache cache(options_at(dir / "cache"));
  const auto wrong = [&](Entry entry) {
    return cache.get_or_build(name_of("a"), [&] { return Result<Entry>(entry); });
  };
  CHECK(wrong(sample("b")).error().code == ErrorCode::internal);
  CHECK_FALSE(wrong(sample("a", 100, "12.9.9")));
  CHECK_FALSE(wrong(sample("a", 0)));
  Entry no_payload = sample("a");
  no_payload.payload = nullptr;
  CHECK_FALSE(wrong(no_payload));
  CHECK(cache.store().list().empty());
  // Asked for any builder, the one that built is kept.
  CHECK(
      cache.get_or_build(name_of("a", ""), [] { return Result<Entry>(sample("a", 100, "12.9.9")); })->builder ==
      "12.9.9");
  CHECK(cache.get(name_of("a", "12.9.9")));
}

TEST_CASE("what was built is used as it is: a loser's or NFS's view of the directory does not matter") {
  const TempDir dir;
  CacheOptions o = options_at(dir / "cache");
  o.disk.publish_hook = [&](PublishStep step) {
    if (step == PublishStep::renamed) fs::remove(entry_path(o.disk.root, name_of("a")));
    return 0;
  };
  KernelCache cache(o);
  const auto built = cache.get_or_build(name_of("a"), [] { return Result<Entry>(sample("a")); });
  REQUIRE(built);
  CHECK(same(*built, sample("a")));
  CHECK_FALSE(fs::exists(entry_path(o.disk.root, name_of("a"))));
}

TEST_CASE("C05: with a directory that cannot be used, kernels are still built, once per process") {
  const TempDir dir;
  write_text(dir / "file", "");
  Warnings warnings;
  CacheOptions o = options_at(dir / "file/cache");
  o.disk.warn = warnings.fn();
  KernelCache cache(o);
  int builds = 0;
  for (int i = 0; i < 3; ++i)
    CHECK(cache.get_or_build(name_of("a"), [&] { return ++builds, Result<Entry>(sample("a")); }));
  CHECK(builds == 1);
  CHECK(warnings.count() == 1);
}

TEST_CASE("a forked child does not wait for a build of its parent's thread") {
  KernelCache cache(options_at(""));
  std::atomic<bool> building = false, finish = false;
  std::thread builder([&] {
    (void)cache.get_or_build(name_of("a"), [&]() -> Result<Entry> {
      building = true;
      while (!finish) std::this_thread::sleep_for(1ms);
      return sample("a");
    });
  });
  while (!building) std::this_thread::sleep_for(1ms);
  const int rc = in_child([&] {
    ::alarm(20);
    return cache.get_or_build(name_of("a"), [] { return Result<Entry>(sample("a")); }) ? 0 : 1;
  });
  finish = true;
  builder.join();
  CHECK(rc == 0);
}
