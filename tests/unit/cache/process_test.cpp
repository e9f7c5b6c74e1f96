// The cache under several processes, some of which are killed.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <thread>

#include "cache/kernel_cache.hpp"
#include "support.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

struct Fixture {
  TempDir dir;
  CacheOptions options;
  FileCounter builds{dir / "builds"};
  FileCounter started{dir / "started"};

  Fixture() { options.disk.root = dir / "cache"; }

  // Builds as a compiler would, and counts.
  BuildFn build(const std::string& id, std::chrono::milliseconds takes = 0ms) const {
    return [this, id, takes]() -> Result<Entry> {
      builds.add();
      std::this_thread::sleep_for(takes);
      return sample(id);
    };
  }
  // Starts `n` children at one moment and counts those that do not end with 0.
  template <class Body>
  int failures_of(int n, Body body) const {
    int gate[2];
    if (::pipe(gate) != 0) return -1;
    std::vector<pid_t> children;
    for (int i = 0; i < n; ++i)
      children.push_back(spawn([&] {
        ::close(gate[1]);
        char c;
        [[maybe_unused]] const ssize_t at_the_gate =
            ::read(gate[0], &c, 1);  // returns when the parent closes it
        ::alarm(60);
        return body();
      }));
    ::close(gate[0]);
    ::close(gate[1]);
    int failures = 0;
    for (const pid_t child : children) failures += wait_for(child) != 0;
    return failures;
  }
  void wait_until_started() const {
    while (started.count() == 0) std::this_thread::sleep_for(1ms);
  }
  std::size_t entries() const { return KernelCache(options).store().list().size(); }
  bool clean() const {
    DiskStore store(options.disk);
    const auto report = verify(store);
    return report && report->damaged.empty();
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "C01: 16 cold processes, one key: one build, one file, no leftovers") {
  CHECK(failures_of(16, [&] {
          KernelCache cache(options);
          const auto got = cache.get_or_build(name_of("a"), build("a", 200ms));
          return got && same(*got, sample("a")) ? 0 : 1;
        }) == 0);
  CHECK(builds.count() == 1);
  CHECK(files_below(options.disk.root + "/v1/obj").size() == 1);
  CHECK(fs::is_empty(options.disk.root + "/v1/tmp"));
  DiskStore store(options.disk);
  const Stats total = read_total_stats(store);
  CHECK(total.compile == 1);
  CHECK(total.miss == 1);
  CHECK(total.hit_disk == 15);
}

TEST_CASE_METHOD(Fixture, "C01: 16 cold processes, 32 keys: 32 builds") {
  CHECK(failures_of(16, [&] {
          KernelCache cache(options);
          for (int i = 0; i < 32; ++i) {
            const std::string id = std::to_string((i * 7 + ::getpid()) % 32);
            const auto got = cache.get_or_build(name_of(id), build(id, 2ms));
            if (!got || !same(*got, sample(id))) return 1;
          }
          return 0;
        }) == 0);
  CHECK(builds.count() == 32);
  CHECK(entries() == 32);
  CHECK(clean());
  CHECK(fs::is_empty(options.disk.root + "/v1/tmp"));
}

TEST_CASE_METHOD(Fixture,
                 "C01: when the winner's compile fails, the next process tries, and nothing failed is stored") {
  CHECK(failures_of(16, [&] {
          KernelCache cache(options);
          bool failed = false;
          const auto got = cache.get_or_build(name_of("a"), [&]() -> Result<Entry> {
            builds.add();
            std::this_thread::sleep_for(20ms);
            failed = builds.count() == 1;
            return failed ? Result<Entry>(Error{ErrorCode::compile_failed, "killed"})
                          : Result<Entry>(sample("a"));
          });
          return failed ? (got ? 1 : 0) : (got && same(*got, sample("a")) ? 0 : 1);
        }) == 0);
  CHECK(builds.count() == 2);
  CHECK(entries() == 1);
}

TEST_CASE_METHOD(Fixture, "C02: a process killed while it compiles under the lock delays nobody") {
  const pid_t child = spawn([&] {
    KernelCache cache(options);
    (void)cache.get_or_build(name_of("a"), [&]() -> Result<Entry> {
      started.add();
      std::this_thread::sleep_for(60s);
      return sample("a");
    });
    return 0;
  });
  wait_until_started();
  ::kill(child, SIGKILL);
  CHECK(wait_for(child) == 128 + SIGKILL);
  const auto start = Clock::now();
  CHECK(KernelCache(options).get_or_build(name_of("a"), build("a")));
  CHECK(Clock::now() - start < 2s);
  CHECK(builds.count() == 1);
}

TEST_CASE_METHOD(Fixture, "C02: a long wait names the process that is waited for, and ends with its result") {
  const pid_t child = spawn([&] {
    KernelCache cache(options);
    return cache.get_or_build(name_of("a"),
                              [&]() -> Result<Entry> {
                                started.add();
                                builds.add();
                                std::this_thread::sleep_for(600ms);
                                return sample("a");
                              })
               ? 0
               : 1;
  });
  wait_until_started();
  Warnings warnings;
  options.disk.warn = warnings.fn();
  options.lock_wait.warn_after = 100ms;
  KernelCache cache(options);
  CHECK(cache.get_or_build(name_of("a"), build("a")));
  CHECK(wait_for(child) == 0);
  CHECK(builds.count() == 1);
  CHECK(warnings.count() == 1);
  CHECK(warnings.mention("pid " + std::to_string(child)));
  CHECK(cache.stats().lock_wait_ms >= 100);
  CHECK(cache.stats().hit_disk == 1);
  CHECK(cache.stats().compile == 0);
}

TEST_CASE_METHOD(
    Fixture,
    "C02: a holder that hangs is waited for up to the limit, then the kernel is built without the lock") {
  const pid_t child = spawn([&] {
    KernelCache cache(options);
    (void)cache.get_or_build(name_of("a"), [&]() -> Result<Entry> {
      started.add();
      ::raise(SIGSTOP);
      return sample("a");
    });
    return 0;
  });
  wait_until_started();
  options.lock_wait.limit = 200ms;
  const auto start = Clock::now();
  CHECK(KernelCache(options).get_or_build(name_of("a"), build("a")));
  CHECK(Clock::now() - start >= 200ms);
  CHECK(Clock::now() - start < 10s);
  ::kill(child, SIGKILL);
  wait_for(child);
  CHECK(clean());
}

TEST_CASE_METHOD(Fixture, "C02: a child forked during a build does not keep its parent's lock") {
  KernelCache cache(options);
  pid_t child = 0;
  REQUIRE(cache.get_or_build(name_of("a"), [&]() -> Result<Entry> {
    child = spawn([] {
      ::pause();
      return 0;
    });
    return sample("a");
  }));
  DiskStore store(options.disk);
  LockWait wait;
  wait.limit = 100ms;
  CHECK(store.lock_for_build(name_of("a").key, wait).held());
  ::kill(child, SIGKILL);
  wait_for(child);
}

TEST_CASE_METHOD(Fixture, "C02: kill -9 at every step of a publish leaves a cache that works") {
  for (const auto step : {PublishStep::temp_created, PublishStep::half_written, PublishStep::written,
                          PublishStep::synced, PublishStep::ready, PublishStep::renamed}) {
    const std::string id = "step" + std::to_string(static_cast<int>(step));
    const int rc = in_child([&] {
      CacheOptions killing = options;
      killing.disk.publish_hook = [step](PublishStep at) { return at == step ? ::raise(SIGKILL) : 0; };
      KernelCache cache(killing);
      (void)cache.get_or_build(name_of(id), [&] { return Result<Entry>(sample(id)); });
      return 0;
    });
    CHECK(rc == 128 + SIGKILL);
    KernelCache cache(options);
    CHECK(cache.get(name_of(id)).has_value() == (step == PublishStep::renamed));
    CHECK(cache.get_or_build(name_of(id), build(id)));
    CHECK(cache.stats().corrupt == 0);
  }
  CHECK(builds.count() == 5);
  CHECK(entries() == 6);
  CHECK(clean());
  const std::string tmp = options.disk.root + "/v1/tmp";
  const auto leftovers = files_below(tmp);
  CHECK(leftovers.size() == 5);
  for (const std::string& name : leftovers) set_age(tmp + "/" + name, 7200);
  DiskStore store(options.disk);
  CHECK(prune(store, {})->removed.size() == 5);
  CHECK(fs::is_empty(tmp));
}

TEST_CASE_METHOD(Fixture, "a lock directory that cannot be used costs the single flight, nothing else") {
  { KernelCache(options).store().put(sample("b")); }
  fs::remove_all(options.disk.root + "/v1/lock");
  write_text(options.disk.root + "/v1/lock", "");
  CHECK(failures_of(
            4, [&] { return KernelCache(options).get_or_build(name_of("a"), build("a", 5ms)) ? 0 : 1; }) == 0);
  CHECK(builds.count() >= 1);
  CHECK(same(KernelCache(options).get(name_of("a")), sample("a")));
}

TEST_CASE_METHOD(Fixture, "C20: eight processes with forty kernels each compile no more at a time than there are places") {
  // One byte for each compile that begins or ends, in one order for all processes: the running sum is how many run.
  const std::string log = dir / "running";
  const auto mark = [&](const char* what) {
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    [[maybe_unused]] const ssize_t n = ::write(fd, what, 1);
    ::close(fd);
  };
  constexpr int kPlaces = 3;
  CHECK(failures_of(8, [&] {
          KernelCache cache(options);
          for (int key = 0; key < 40; ++key) {
            const std::string id = std::to_string(::getpid()) + "-" + std::to_string(key);
            const auto got = cache.get_or_build(name_of(id), [&]() -> Result<Entry> {
              const RangeLock place = cache.compile_place(kPlaces);
              if (!place.held()) return Error{ErrorCode::internal, "no place"};
              mark("+");
              std::this_thread::sleep_for(1ms);
              mark("-");
              return sample(id);
            });
            if (!got || !same(*got, sample(id))) return 1;
          }
          return 0;
        }) == 0);
  int running = 0, most = 0;
  for (const char c : read_text(log)) most = std::max(most, running += c == '+' ? 1 : -1);
  CHECK(running == 0);
  CHECK(most <= kPlaces);
  CHECK(most > 1);
  CHECK(read_text(log).size() == 8 * 40 * 2);
}

TEST_CASE_METHOD(Fixture, "C20: a place is given back by a process that is killed, and waited for no longer than the limit") {
  const pid_t holder = spawn([&] {
    KernelCache cache(options);
    const RangeLock place = cache.compile_place(1);
    started.add();
    std::this_thread::sleep_for(60s);
    return 0;
  });
  wait_until_started();
  CacheOptions hasty = options;
  hasty.lock_wait.limit = 50ms;
  CHECK_FALSE(KernelCache(hasty).compile_place(1).held());
  CHECK(KernelCache(hasty).compile_place(2).held());
  ::kill(holder, SIGKILL);
  wait_for(holder);
  CHECK(KernelCache(hasty).compile_place(1).held());
  hasty.mode = CacheMode::off;
  CHECK_FALSE(KernelCache(hasty).compile_place(1).held());
}
