#include "cache/disk_store.hpp"

#include <catch2/catch.hpp>

#include "cache/maintenance.hpp"
#include "support.hpp"

using namespace w4moe;
using namespace w4moe::cache;
using namespace w4moe::cache::test;

namespace {

// A store in a fresh directory with its warnings.
struct Fixture {
  TempDir dir;
  Warnings warnings;
  std::string root = dir / "cache";

  DiskOptions options() {
    DiskOptions o;
    o.root = root;
    o.warn = warnings.fn();
    return o;
  }
  std::string path(const Entry& entry) const { return entry_path(root, entry.name()); }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "what is put is found by another store, in private files") {
  const Entry entry = sample("a");
  DiskStore writer(options());
  CHECK_FALSE(writer.get(entry.name()));
  CHECK_FALSE(fs::exists(root));  // a look does not make the directory
  writer.put(entry);
  DiskStore reader(options());
  CHECK(same(reader.get(entry.name()), entry));
  CHECK(reader.list().size() == 1);
  CHECK(reader.list()[0].name == entry.name());
  CHECK(root + "/" + reader.list()[0].path == path(entry));
  CHECK(mode_of(root) == 0700);
  CHECK(mode_of(root + "/v1/obj") == 0700);
  CHECK(mode_of(path(entry)) == 0600);
  CHECK(read_text(path(entry)).starts_with("kernel a\n"));
  CHECK(read_text(root + "/CACHEDIR.TAG").starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
  CHECK(reader.remove(entry.name()));
  CHECK_FALSE(reader.get(entry.name()));
  CHECK(writer.stats()->read().put == 1);
  CHECK(warnings.count() == 0);
}

TEST_CASE_METHOD(Fixture, "a directory that held other things is not tagged as a cache") {
  fs::create_directory(root);
  ::chmod(root.c_str(), 0755);
  write_text(root + "/thesis.txt", "x");
  DiskStore(options()).put(sample("a"));
  CHECK_FALSE(fs::exists(root + "/CACHEDIR.TAG"));
  CHECK(mode_of(root) == 0755);
  CHECK(mode_of(root + "/v1") == 0700);
}

TEST_CASE_METHOD(Fixture,
                 "C14: builds of several compilers live side by side; without one, the newest valid is taken") {
  DiskStore store(options());
  for (const char* builder : {"12.9.1", "12.10.2", ""}) store.put(sample("a", 500, builder));
  CHECK(store.get(name_of("a", "12.9.1"))->builder == "12.9.1");
  CHECK_FALSE(store.get(name_of("a", "13.0.0")));
  CHECK_FALSE(store.get(name_of("a", "../12.9.1")));
  CHECK(store.get(name_of("a", ""))->builder == "12.10.2");
  fs::resize_file(entry_path(root, name_of("a", "12.10.2")), 100);
  CHECK(store.get(name_of("a", ""))->builder == "12.9.1");
}

TEST_CASE_METHOD(Fixture,
                 "C10, C17: a damaged or foreign entry is detected, removed, replaced, and then hit again") {
  const Entry entry = sample("a"), other = sample("b");
  DiskStore(options()).put(entry);
  DiskStore(options()).put(other);
  const std::string good = read_text(path(entry));
  std::string bad = good;
  SECTION("empty") { bad.clear(); }
  SECTION("cut at half") { bad.resize(good.size() / 2); }
  SECTION("one byte short") { bad.pop_back(); }
  SECTION("a flipped bit in the middle") { bad[bad.size() / 2] ^= 4; }
  SECTION("another entry under this name") { bad = read_text(path(other)); }
  SECTION("another compiler's build under this name") {
    DiskStore(options()).put(sample("a", 1000, "12.9.0"));
    bad = read_text(entry_path(root, name_of("a", "12.9.0")));
  }
  SECTION("binary of one entry, metadata of another") {
    bad = read_text(path(other)).substr(0, 1000) + good.substr(1000);
  }
  SECTION("an HTML error page") { bad = "<html>"; }
  write_text(path(entry), bad);
  DiskStore store(options());
  CHECK_FALSE(store.get(entry.name()));
  CHECK(store.stats()->read().corrupt == 1);
  CHECK(warnings.count() == 1);
  CHECK(warnings.mention(path(entry).substr(root.size() + 1)));
  CHECK_FALSE(fs::exists(path(entry)));
  store.put(entry);
  CHECK(same(DiskStore(options()).get(entry.name()), entry));
  CHECK(store.stats()->read().corrupt == 1);
}

TEST_CASE_METHOD(Fixture, "C08: planted entries are neither loaded nor followed") {
  const Entry entry = sample("a");
  DiskStore(options()).put(entry);
  const std::string outside = dir / "outside";
  SECTION("writable by others") { ::chmod(path(entry).c_str(), 0666); }
  SECTION("a symbolic link to a valid entry") {
    fs::rename(path(entry), outside);
    fs::create_symlink(outside, path(entry));
  }
  SECTION("a FIFO") {
    fs::remove(path(entry));
    REQUIRE(::mkfifo(path(entry).c_str(), 0600) == 0);
  }
  SECTION("owned by another user") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown(path(entry).c_str(), 4242, 4242) == 0);
  }
  DiskStore store(options());
  CHECK_FALSE(store.get(entry.name()));
  CHECK(warnings.count() == 1);
  const std::string before = fs::exists(outside) ? read_text(outside) : "";
  store.put(entry);
  CHECK(same(store.get(entry.name()), entry));
  CHECK((fs::exists(outside) ? read_text(outside) : "") == before);
  CHECK(fs::is_regular_file(fs::symlink_status(path(entry))));
}

TEST_CASE_METHOD(Fixture, "C08: a planted root is never read nor written") {
  const Entry entry = sample("a");
  const std::string real = dir / "real";
  DiskOptions plant = options();
  plant.root = real;
  DiskStore(plant).put(entry);
  DiskOptions o = options();
  SECTION("a symbolic link") { fs::create_directory_symlink(real, root); }
  SECTION("mode 0777") {
    fs::rename(real, root);
    ::chmod(root.c_str(), 0777);
  }
  SECTION("a planted v1") {
    fs::rename(real, root);
    ::chmod((root + "/v1").c_str(), 0777);
  }
  SECTION("owned by another user") {
    fs::rename(real, root);
    if (::geteuid() == 0)
      REQUIRE(::chown(root.c_str(), 4242, 4242) == 0);
    else
      o.trust.euid = ::geteuid() + 1;
  }
  const auto before = files_below(dir.path());
  DiskStore store(o);
  CHECK_FALSE(store.get(entry.name()));
  store.put(sample("b"));
  CHECK(store.list().empty());
  CHECK_FALSE(store.lock_for_build(entry.key(), {}).held());
  CHECK(files_below(dir.path()) == before);
  CHECK(store.stats()->read().put_failed == 1);
  CHECK(warnings.count() == 1);
  CHECK(warnings.mention(root));
  CHECK(warnings.mention("W4MOE_CACHE_DIR"));
}

TEST_CASE_METHOD(Fixture, "C09: a directory shared on purpose keeps its mode and passes it on") {
  fs::create_directory(root);
  REQUIRE(::chmod(root.c_str(), 02775) == 0);
  const Entry entry = sample("a");
  DiskStore refusing(options());
  refusing.put(entry);
  CHECK(warnings.mention("W4MOE_CACHE_SHARED=1"));
  CHECK(mode_of(root) == 02775);
  CHECK(fs::is_empty(root));
  DiskOptions shared = options();
  shared.trust.shared = true;
  DiskStore store(shared);
  store.put(entry);
  CHECK(mode_of(root) == 02775);
  CHECK(mode_of(root + "/v1/obj") == 02775);
  CHECK(mode_of(path(entry)) == 0664);
  shared.trust.euid = 4242;  // as a colleague sees it
  CHECK(same(DiskStore(shared).get(entry.name()), entry));
}

TEST_CASE_METHOD(Fixture, "a directory to be shipped is readable by all") {
  DiskOptions o = options();
  o.public_read = true;
  DiskStore(o).put(sample("a"));
  CHECK(mode_of(root) == 0755);
  CHECK(mode_of(root + "/v1/obj") == 0755);
  CHECK(mode_of(path(sample("a"))) == 0644);
}

TEST_CASE("C05: an unwritable directory costs one warning that names it and the variable") {
  const int rc = in_child([] {
    if (!become_nobody()) return 10;
    Fixture f;
    fs::create_directory(f.root);
    if (::chmod(f.root.c_str(), 0555) != 0) return 11;
    DiskStore store(f.options());
    if (store.get(name_of("a"))) return 12;
    for (const char* id : {"a", "b", "c"}) store.put(sample(id));
    if (store.lock_for_build(name_of("a").key, {}).held()) return 13;
    if (store.stats()->read().put_failed != 3) return 14;
    if (f.warnings.count() != 1 || !f.warnings.mention(f.root) || !f.warnings.mention("W4MOE_CACHE_DIR"))
      return 15;
    if (!fs::is_empty(f.root)) return 16;
    // The parent is missing and cannot be made.
    DiskOptions below = f.options();
    below.root = f.root + "/deep/cache";
    DiskStore uncreatable(below);
    if (uncreatable.get(name_of("a"))) return 17;
    uncreatable.put(sample("a"));
    return f.warnings.count() == 2 && f.warnings.mention(below.root) ? 0 : 18;
  });
  CHECK(rc == 0);
}

TEST_CASE_METHOD(Fixture, "a full disk at any step of a put is a failed put, not an error") {
  for (const int error : {ENOSPC, EDQUOT, EROFS, EIO}) {
    DiskOptions o = options();
    o.publish_hook = [error](PublishStep step) { return step == PublishStep::half_written ? error : 0; };
    DiskStore store(o);
    store.put(sample("a"));
    CHECK(store.stats()->read().put_failed == 1);
    CHECK_FALSE(store.get(name_of("a")));
    CHECK(fs::is_empty(root + "/v1/tmp"));
    CHECK(store.publish(sample("a")).error().message.find(errno_text(error)) != std::string::npos);
  }
  CHECK(warnings.count() == 4);  // one a store
}

TEST_CASE_METHOD(Fixture, "a tree that was removed while it was open is made anew") {
  DiskStore store(options());
  store.put(sample("a"));
  fs::remove_all(root);
  CHECK_FALSE(store.get(name_of("a")));
  store.put(sample("b"));
  CHECK(same(DiskStore(options()).get(name_of("b")), sample("b")));
  CHECK(warnings.count() == 0);
}

TEST_CASE_METHOD(Fixture, "a read-only directory is not changed by anything, damage included") {
  DiskStore(options()).put(sample("a"));
  DiskStore(options()).put(sample("b"));
  set_age(path(sample("a")), 7200);
  fs::resize_file(path(sample("b")), 10);
  fs::remove_all(root + "/v1/tmp");
  fs::remove_all(root + "/v1/lock");
  const auto before = files_below(root);
  DiskOptions o = options();
  o.read_only = true;
  DiskStore store(o);
  CHECK(same(store.get(name_of("a")), sample("a")));
  CHECK(age_of(path(sample("a"))) >= 7200);
  CHECK_FALSE(store.get(name_of("b")));
  CHECK(fs::exists(path(sample("b"))));
  store.put(sample("c"));
  CHECK_FALSE(store.remove(name_of("a")));
  CHECK_FALSE(store.publish(sample("c")));
  CHECK_FALSE(store.lock_for_build(name_of("a").key, {}).held());
  CHECK(files_below(root) == before);
  CHECK_FALSE(fs::exists(root + "/v1/tmp"));
}

TEST_CASE_METHOD(Fixture, "a read-only directory that is missing is named once") {
  DiskOptions o = options();
  o.read_only = true;
  DiskStore store(o);
  CHECK_FALSE(store.get(name_of("a")));
  CHECK_FALSE(store.get(name_of("b")));
  CHECK(warnings.count() == 1);
  CHECK(warnings.mention("W4MOE_CACHE_READONLY_DIRS"));
}

TEST_CASE_METHOD(Fixture, "C15: a moved directory gives the same hits") {
  for (const char* id : {"a", "b", "c"}) DiskStore(options()).put(sample(id));
  fs::create_directories(dir / "srv/b");
  fs::rename(root, dir / "srv/b/kernels");
  DiskOptions o = options();
  o.root = dir / "srv/b/kernels";
  DiskStore moved(o);
  for (const char* id : {"a", "b", "c"}) CHECK(same(moved.get(name_of(id)), sample(id)));
}

TEST_CASE_METHOD(Fixture,
                 "a hit renews the time of use at most once an hour, and puts right a clock that was ahead") {
  DiskStore store(options());
  store.put(sample("a"));
  const std::string file = path(sample("a"));
  for (const auto& [age, renewed] :
       {std::pair<std::int64_t, bool>{1800, false}, {7200, true}, {-86400 * 3650, true}}) {
    set_age(file, age);
    REQUIRE(store.get(name_of("a")));
    CHECK((std::llabs(age_of(file)) < 100) == renewed);
  }
}

TEST_CASE("a small tmpfs that is full, and one that is read only") {
  const int rc = in_child([] {
    TempDir dir;
    const std::string target = dir / "mount";
    fs::create_directory(target);
    if (!mount_tmpfs(target)) return 77;
    DiskOptions o;
    o.root = target;
    o.trust.shared = true;  // in a user namespace of our own, "/" belongs to nobody
    Warnings warnings;
    o.warn = warnings.fn();
    DiskStore store(o);
    store.put(sample("small"));
    store.put(sample("large", 1 << 20));
    if (!same(store.get(name_of("small")), sample("small"))) return 10;
    if (store.get(name_of("large")) || store.stats()->read().put_failed != 1 || warnings.count() != 1)
      return 11;
    if (!fs::is_empty(target + "/v1/tmp")) return 12;
    if (!remount_read_only(target)) return 77;
    DiskStore frozen(o);
    frozen.put(sample("another"));
    set_age(entry_path(target, name_of("small")), 7200);
    if (!same(frozen.get(name_of("small")), sample("small"))) return 13;
    return frozen.stats()->read().put_failed == 1 && warnings.mention("Read-only file system") ? 0 : 14;
  });
  if (rc == 77)
    WARN("not run: no tmpfs can be mounted here");
  else
    CHECK(rc == 0);
}
