// Processes that use one cache directory in every way at once, while entries are damaged and processes killed. What
// must hold: whoever asks for a kernel gets that kernel, promptly, and in the end the directory is sound.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>
#include <thread>

#include "../unit/cache/support.hpp"
#include "cache/kernel_cache.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kKeys = 24;
constexpr int kWorkers = 16;
constexpr int kPublishSteps = static_cast<int>(PublishStep::renamed) + 1;
constexpr std::uint64_t kMaxBytes = 200'000;  // fewer than all entries, so that eviction takes part

Entry entry_of(int key) { return sample(std::to_string(key), 4000 + static_cast<std::size_t>(key) * 1000); }

/// How often a process was killed after this step of a publish.
FileCounter kills_at(const std::string& root, int step) { return FileCounter(root + "-kills-" + std::to_string(step)); }

/// What all workers together did, one byte a time.
FileCounter done(const std::string& root, const char* what) { return FileCounter(root + "-" + what); }

CacheOptions options_at(const std::string& root, std::mt19937& random) {
  CacheOptions o;
  o.disk.root = root;
  o.disk.max_bytes = kMaxBytes;
  o.max_memory_bytes = 20'000;  // so that most look-ups go to disk
  // One publish in 50 hits a full disk; after one step in 200 the process is killed, as by the system.
  o.disk.publish_hook = [root, seed = static_cast<std::uint32_t>(random())](PublishStep step) mutable {
    seed = seed * 1664525U + 1013904223U;
    if ((seed >> 8) % 200 == 0) {
      kills_at(root, static_cast<int>(step)).add();
      ::kill(::getpid(), SIGKILL);
    }
    return step == PublishStep::half_written && (seed >> 16) % 50 == 0 ? ENOSPC : 0;
  };
  return o;
}

// Damages an entry file in place, as a broken disk or a careless tool would.
void damage(const std::string& root, std::mt19937& random) {
  const std::string path = entry_path(root, entry_of(static_cast<int>(random() % kKeys)).name());
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] ssize_t n = 0;
  if (random() % 2 == 0)
    n = ::ftruncate(fd, static_cast<off_t>(random() % 4000));
  else
    n = ::pwrite(fd, "?", 1, static_cast<off_t>(random() % 4000));
  ::close(fd);
  done(root, "damaged").add();
}

// One worker until the end: 0, or a number that tells what was wrong.
int work(const std::string& root, unsigned seed, Clock::time_point end) {
  std::mt19937 random(seed);
  while (Clock::now() < end) {
    KernelCache cache(options_at(root, random));
    for (int i = 0; i < 50 && Clock::now() < end; ++i) {
      const int key = static_cast<int>(random() % kKeys);
      const Entry expected = entry_of(key);
      const auto start = Clock::now();
      switch (random() % 16) {
        case 0:
          damage(root, random);
          break;
        case 1:
          cache.store().remove(expected.name());
          break;
        case 2:
          (void)verify(*cache.store().disk(), true);
          break;
        case 3: {
          PruneOptions o;
          o.max_bytes = random() % kMaxBytes;
          (void)prune(*cache.store().disk(), o);
          break;
        }
        case 4:
          if (const auto got = cache.get(expected.name()); got && !same(got, expected)) return 10;
          break;
        default: {
          const auto got = cache.get_or_build(expected.name(), [&]() -> Result<Entry> {
            std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3));
            if (random() % 20 == 0) return Error{ErrorCode::compile_failed, "on purpose"};
            done(root, "built").add();
            return entry_of(key);
          });
          if (got ? !same(*got, expected) : got.error().message != "on purpose") return 11;
          if (got) done(root, "served").add();
        }
      }
      if (Clock::now() - start > 30s) return 12;
    }
  }
  return 0;
}

void torture(std::chrono::seconds duration) {
  const TempDir dir;
  const std::string root = dir / "cache";
  const auto end = Clock::now() + duration;
  std::mt19937 random(20240607);
  std::vector<pid_t> workers(kWorkers, 0);
  int killed = 0, failed = 0;
  const auto start_worker = [&] {
    const auto seed = static_cast<unsigned>(random());
    return spawn([&] { return work(root, seed, end); });
  };
  for (pid_t& worker : workers) worker = start_worker();
  while (Clock::now() + 500ms < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
    pid_t& victim = workers[random() % kWorkers];
    ::kill(victim, SIGKILL);
    const int rc = wait_for(victim);
    killed += rc == 128 + SIGKILL;
    failed += rc != 128 + SIGKILL && rc != 0;
    victim = start_worker();
  }
  for (const pid_t worker : workers) {
    const int rc = wait_for(worker);
    CHECK((rc == 0 || rc == 128 + SIGKILL));
  }
  int killed_while_publishing = 0;
  std::string kills_by_step;
  for (int step = 0; step < kPublishSteps; ++step) {
    const int kills = static_cast<int>(kills_at(root, step).count());
    killed_while_publishing += kills;
    kills_by_step += " " + std::to_string(kills);
    if (duration >= 60s) CHECK(kills > 0);
  }
  CHECK(killed_while_publishing > 0);
  CHECK(failed == 0);
  CHECK(killed > 10);
  const auto served = done(root, "served").count(), built_kernels = done(root, "built").count(), damaged = done(root, "damaged").count();
  CHECK(served > built_kernels);
  CHECK(damaged > 0);
  std::printf("%lld s: %lld kernels served, %lld built, %lld entries damaged; %d processes killed at any moment, %d in a publish (by step:%s), %d failed\n",
              static_cast<long long>(duration.count()), static_cast<long long>(served), static_cast<long long>(built_kernels), static_cast<long long>(damaged), killed,
              killed_while_publishing, kills_by_step.c_str(), failed);

  // What the killed ones and the damage left behind is found and removed; then everything works.
  DiskOptions options;
  options.root = root;
  DiskStore store(options);
  std::printf("counters of the processes that ended by themselves: %s\n", stats_to_json(read_total_stats(store)).c_str());
  REQUIRE(verify(store, true));
  CHECK(verify(store)->damaged.empty());
  for (const std::string& name : files_below(root + "/v1/tmp")) set_age(root + "/v1/tmp/" + name, 7200);
  REQUIRE(prune(store, {}));
  CHECK(fs::is_empty(root + "/v1/tmp"));
  int built = 0;
  for (int pass = 0; pass < 2; ++pass) {
    CacheOptions o;
    o.disk = options;
    KernelCache cache(o);
    for (int key = 0; key < kKeys; ++key) {
      const auto got =
          cache.get_or_build(entry_of(key).name(), [&] { return ++built, Result<Entry>(entry_of(key)); });
      REQUIRE(got);
      CHECK(same(*got, entry_of(key)));
    }
    if (pass == 1) CHECK(cache.stats().hit_disk == kKeys);
  }
  CHECK(built <= kKeys);
}

}  // namespace

TEST_CASE("torture: 16 processes under kill -9 at any moment and at each step of a publish, damage, pruning, a full disk: ten seconds") {
  torture(10s);
}
TEST_CASE("torture: the same for a minute", "[.minute]") { torture(60s); }
TEST_CASE("torture: the same for ten minutes", "[.ten-minutes]") { torture(600s); }

TEST_CASE("torture: threads of one process share a cache while another process prunes it") {
  const TempDir dir;
  CacheOptions options;
  options.disk.root = dir / "cache";
  options.max_memory_bytes = 20'000;
  const auto end = Clock::now() + 2s;
  const pid_t pruner = spawn([&] {
    while (Clock::now() < end) {
      DiskStore store(options.disk);
      PruneOptions o;
      o.max_bytes = 50'000;
      (void)prune(store, o);
      std::this_thread::sleep_for(2ms);
    }
    return 0;
  });
  KernelCache cache(options);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      while (Clock::now() < end) {
        const int key = static_cast<int>(random() % kKeys);
        const auto got = cache.get_or_build(entry_of(key).name(), [&] { return Result<Entry>(entry_of(key)); });
        wrong += !got || !same(*got, entry_of(key));
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wait_for(pruner) == 0);
  CHECK(wrong == 0);
}
