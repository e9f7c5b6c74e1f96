#include "cache/maintenance.hpp"

#include <catch2/catch.hpp>

#include "support.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;

namespace {

DiskOptions at(const std::string& root, bool read_only = false) {
  DiskOptions o;
  o.root = root;
  o.read_only = read_only;
  return o;
}

void put_all(const std::string& root, std::initializer_list<const char*> ids) {
  DiskStore store(at(root));
  for (const char* id : ids) store.put(sample(id));
}

}  // namespace

TEST_CASE("verify reads every entry and names what is damaged; read-only directories too") {
  const TempDir dir;
  const std::string root = dir / "cache";
  put_all(root, {"a", "b", "c"});
  write_text(entry_path(root, name_of("b")), "broken");
  DiskStore reading(at(root, true)), writing(at(root));
  for (DiskStore* store : {&reading, &writing}) {
    const auto report = verify(*store, store == &reading);
    REQUIRE(report);
    CHECK(report->checked == 3);
    REQUIRE(report->damaged.size() == 1);
    CHECK(root + "/" + report->damaged[0].path == entry_path(root, name_of("b")));
    CHECK_FALSE(report->damaged[0].removed);
  }
  CHECK(verify(writing, true)->damaged[0].removed);
  CHECK(verify(writing)->damaged.empty());
  CHECK(verify(writing)->checked == 2);
  DiskStore missing(at(dir / "none"));
  CHECK(verify(missing).error().code == ErrorCode::io);
}

TEST_CASE("export, import and merge: valid entries are copied once, damaged ones reported") {
  const TempDir dir;
  put_all(dir / "one", {"a", "b", "c"});
  put_all(dir / "two", {"b", "d"});
  fs::resize_file(entry_path(dir / "one", name_of("c")), 50);
  const std::string b_before = read_text(entry_path(dir / "two", name_of("b")));
  DiskStore from(at(dir / "one", true)), to(at(dir / "two"));
  const auto report = copy_entries(from, to);
  REQUIRE(report);
  CHECK(report->copied == 1);
  CHECK(report->present == 1);
  REQUIRE(report->failed.size() == 1);
  for (const char* id : {"a", "b", "d"}) CHECK(same(DiskStore(at(dir / "two")).get(name_of(id)), sample(id)));
  CHECK(read_text(entry_path(dir / "two", name_of("a"))) == read_text(entry_path(dir / "one", name_of("a"))));
  CHECK(read_text(entry_path(dir / "two", name_of("b"))) == b_before);
  DiskStore target(at(dir / "three/new", true)), nothing(at(dir / "none"));
  CHECK(copy_entries(from, target)->failed.size() == 3);
  CHECK_FALSE(copy_entries(nothing, to));
}

TEST_CASE("C22: the nearest entry and the differing field explain a miss") {
  const TempDir dir;
  DiskStore store(at(dir / "cache"));
  const auto text = [](const char* arch, const char* bundle) {
    return KeyBuilder().field("arch", arch).field("bundle", bundle).field("entry", "w4moe_fc1").text();
  };
  CHECK_FALSE(nearest_entry(store, text("sm_90a", "aa")));
  store.put(make_entry("x", 1, text("sm_120a", "bb")));
  store.put(make_entry("x", 1, text("sm_90a", "bb")));
  const auto nearest = nearest_entry(store, text("sm_90a", "aa"));
  REQUIRE(nearest);
  REQUIRE(nearest->differences.size() == 1);
  CHECK(nearest->differences[0].label == "bundle");
  CHECK(nearest->differences[0].left == "aa");
  CHECK(nearest->differences[0].right == "bb");
}
