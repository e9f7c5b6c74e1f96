#include "cache/prune.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "cache/maintenance.hpp"
#include "support.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;

namespace {

constexpr std::int64_t kDay = 86400;

// Entries e0 (used today) to e9 (nine days ago), of one size.
struct Fixture {
  TempDir dir;
  DiskOptions options;
  std::uint64_t each = sample("e0").file_bytes();

  Fixture() {
    options.root = dir / "cache";
    DiskStore store(options);
    for (int i = 0; i < 10; ++i) {
      store.put(sample(id(i)));
      set_age(path(i), i * kDay);
    }
  }
  static std::string id(int i) { return "e" + std::to_string(i); }
  std::string path(int i) const { return entry_path(options.root, name_of(id(i))); }
  std::string left() const {
    std::string out;
    for (int i = 0; i < 10; ++i)
      if (fs::exists(path(i))) out += std::to_string(i);
    return out;
  }
  // The dry run, then the real one, which must do exactly what was said.
  PruneReport run(PruneOptions o) {
    DiskStore store(options);
    const auto before = files_below(dir.path());
    o.dry_run = true;
    const auto planned = prune(store, o);
    REQUIRE(planned);
    CHECK(files_below(dir.path()) == before);
    o.dry_run = false;
    const auto done = prune(store, o);
    REQUIRE(done);
    REQUIRE(done->removed.size() == planned->removed.size());
    for (std::size_t i = 0; i < done->removed.size(); ++i) {
      CHECK(done->removed[i].path == planned->removed[i].path);
      CHECK(done->removed[i].reason == planned->removed[i].reason);
      CHECK_FALSE(fs::exists(options.root + "/" + done->removed[i].path));
    }
    CHECK(done->removed_bytes == planned->removed_bytes);
    CHECK(done->kept_bytes == planned->kept_bytes);
    CHECK(done->kept_entries == left().size());
    return *done;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "C29: --max-size removes the least recently used, and the dry run says which") {
  PruneOptions o;
  o.max_bytes = each * 4 + 1;
  CHECK(run(o).removed_bytes == each * 6);
  CHECK(left() == "0123");
  CHECK(run(o).removed.empty());
}

TEST_CASE_METHOD(Fixture, "C29: a hit makes an entry the youngest") {
  CHECK(DiskStore(options).get(name_of(id(9))));
  PruneOptions o;
  o.max_bytes = each * 3;
  run(o);
  CHECK(left() == "019");
}

TEST_CASE_METHOD(Fixture, "C29: --max-age removes what was not used for so long; limits work together") {
  PruneOptions o;
  o.max_age_s = 5 * kDay + 60;
  CHECK(run(o).removed.front().reason == "max-age");
  CHECK(left() == "012345");
  o.max_bytes = each * 2;
  run(o);
  CHECK(left() == "01");
  o.max_bytes = 0;
  run(o);
  CHECK(left().empty());
}

TEST_CASE_METHOD(Fixture, "C29: whoever has an entry open keeps it") {
  std::ifstream in(path(9), std::ios::binary);
  const auto memory = DiskStore(options).get(name_of(id(8)));
  PruneOptions o;
  o.max_bytes = 0;
  run(o);
  const std::string held{std::istreambuf_iterator<char>(in), {}};
  CHECK(held.size() == each);
  CHECK(same(memory, sample(id(8))));
}

TEST_CASE("C14, C29: other versions live side by side until they are pruned") {
  const TempDir dir;
  DiskOptions options;
  options.root = dir / "cache";
  DiskStore store(options);
  const auto put = [&](const std::string& abi, const std::string& bundle) {
    const std::string text = KeyBuilder().field("abi", abi).field("bundle", bundle).text();
    store.put(make_entry("kernel", 6, text));
    return EntryName(Key::of_text(text));
  };
  const EntryName old_abi = put("1", "aa"), old_bundle = put("2", "aa"), now = put("2", "bb");
  const std::string unlabelled = KeyBuilder().field("bundle", "bb").text();
  store.put(make_entry("kernel", 6, unlabelled));
  for (const EntryName& name : {old_abi, old_bundle, now}) CHECK(store.get(name));
  fs::create_directories(options.root + "/v2/obj");
  write_text(options.root + "/v2/obj/x", "12345");
  fs::create_directories(options.root + "/v01");
  fs::create_directories(options.root + "/videos");
  fs::create_directory_symlink("/etc", options.root + "/v3");

  PruneOptions o;
  o.current = {{"abi", "2"}, {"bundle", "bb"}};
  o.other_schemas = true;
  const auto report = prune(store, o);
  REQUIRE(report);
  CHECK(report->removed.size() == 4);
  CHECK(report->removed.back().path == "v2");
  CHECK(report->removed.back().bytes == 5);
  CHECK(store.get(now));
  CHECK_FALSE(store.get(old_abi));
  CHECK_FALSE(store.get(old_bundle));
  CHECK_FALSE(fs::exists(options.root + "/v2"));
  for (const char* kept : {"/v01", "/videos", "/v3"})
    CHECK(fs::exists(fs::symlink_status(options.root + kept)));
}

TEST_CASE_METHOD(
    Fixture, "C29: a put that passes the limit brings the directory down to 80 %, and spares what is young") {
  options.max_bytes = each * 10;
  DiskStore store(options);
  store.put(sample("new0"));
  CHECK(store.stats()->read().evicted == 4);  // the new one is a little larger
  CHECK(left() == "012345");
  CHECK(store.get(name_of("new0")));
  // Nothing used within ten minutes goes, even above the limit.
  for (int i = 1; i < 20; ++i) store.put(sample("new" + std::to_string(i)));
  CHECK(left() == "0");  // e0 was made just now, too
  for (int i = 0; i < 20; ++i) CHECK(store.get(name_of("new" + std::to_string(i))));
}

TEST_CASE_METHOD(Fixture, "one process evicts at a time, and the others do not wait") {
  options.max_bytes = each;
  const int dirfd = ::open((options.root + "/v1/lock").c_str(), O_RDONLY | O_DIRECTORY);
  UniqueFd file = open_lock_file(dirfd, "evict", 0600);
  RangeLock held;
  REQUIRE(held.try_lock(file, 0) == 0);
  DiskStore(options).put(sample("a"));
  CHECK(left() == "0123456789");
  held.release();
  DiskStore(options).put(sample("b"));
  CHECK(left() == "0");
  ::close(dirfd);
}

TEST_CASE_METHOD(Fixture, "no limit: nothing is evicted") {
  options.max_bytes = 0;
  DiskStore(options).put(sample("a", 1 << 20));
  CHECK(left() == "0123456789");
}

TEST_CASE_METHOD(Fixture, "a clock that was ahead leaves no entry that cannot be evicted") {
  set_age(path(0), -3650 * kDay);
  set_age(path(1), -3600 / 2);  // within the slack between machines: simply young
  PruneOptions o;
  o.max_bytes = each * 9;
  run(o);
  CHECK(left() == "123456789");
}

TEST_CASE_METHOD(Fixture, "temporary files of dead writers are swept, those of live ones are not") {
  const std::string tmp = options.root + "/v1/tmp/";
  write_text(tmp + "old", "x");
  set_age(tmp + "old", 7200);
  write_text(tmp + "future", "x");
  set_age(tmp + "future", -7200);
  write_text(tmp + "young", "x");
  const PruneReport report = run({});
  CHECK(report.removed.size() == 2);
  CHECK(report.removed[0].reason == "stale-temp");
  CHECK(fs::exists(tmp + "young"));
  CHECK(left() == "0123456789");
}

TEST_CASE_METHOD(Fixture, "prune does not remove what replaced or renewed an entry meanwhile") {
  DiskStore store(options);
  const auto root = store.root();
  REQUIRE(root);
  std::vector<EntryFile> seen = (*root)->scan();
  for (const EntryFile& file : seen) {
    if (file.name == name_of(id(3))) store.put(sample(id(3)));
    const bool renewed = file.name == name_of(id(4)) && store.get(file.name);
    CHECK((*root)->remove(file) == (file.name != name_of(id(3)) && !renewed));
  }
  CHECK(left() == "34");
}

TEST_CASE_METHOD(Fixture, "a read-only directory is not pruned, only looked at") {
  options.read_only = true;
  DiskStore store(options);
  PruneOptions o;
  o.max_bytes = 0;
  CHECK(prune(store, o).error().code == ErrorCode::invalid_argument);
  o.dry_run = true;
  CHECK(prune(store, o)->removed.size() == 10);
  CHECK(left() == "0123456789");
}
