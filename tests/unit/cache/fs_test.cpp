#include "cache/fs.hpp"

#include <catch2/catch.hpp>
#include <cerrno>

#include "support.hpp"

using namespace w4moe::cache;
using namespace w4moe::cache::test;

namespace {

int open_error(const std::string& path, const Trust& trust = {}, bool create = false) {
  return open_trusted_dir(path, trust, create ? std::optional<mode_t>(0700) : std::nullopt).error;
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

int open_dir(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

}  // namespace

TEST_CASE("a missing directory is made with its parents, private, only when asked") {
  const TempDir dir;
  CHECK(open_error(dir / "a/b") == ENOENT);
  CHECK(open_error(dir / "a/b", {}, true) == 0);
  CHECK(mode_of(dir / "a") == 0700);
  CHECK(mode_of(dir / "a/b") == 0700);
  CHECK(open_error(dir / "a//b/./") == 0);
  write_text(dir / "file", "x");
  CHECK(open_error(dir / "file/b", {}, true) == ENOTDIR);
}

TEST_CASE("C08: directories of others, or writable by others, are refused; so are their children") {
  const TempDir dir;
  fs::create_directories(dir / "open/child");
  for (const mode_t mode : {0777, 0775, 0702}) {
    ::chmod((dir / "open").c_str(), mode);
    CHECK(open_error(dir / "open") == EPERM);
    CHECK(open_error(dir / "open/child") == EPERM);
    CHECK(open_error(dir / "open/new", {}, true) == EPERM);
    CHECK(open_error(dir / "open", Trust{::geteuid(), true}) == 0);
  }
  // /tmp's sticky bit is enough for a parent, not for the directory itself.
  ::chmod((dir / "open").c_str(), 01777);
  CHECK(open_error(dir / "open/child") == 0);
  CHECK(open_error(dir / "open") == EPERM);
  CHECK_FALSE(fs::exists(dir / "open/new"));
}

TEST_CASE("C08: a directory of another uid is refused, root's is not") {
  const TempDir dir;
  const OpenedDir foreign = open_trusted_dir(dir.path(), Trust{::geteuid() + 1, false}, std::nullopt);
  if (::geteuid() == 0) {
    CHECK(foreign.error == 0);  // owned by root
    REQUIRE(::chown(dir.path().c_str(), 4242, 4242) == 0);
    const OpenedDir theirs = open_trusted_dir(dir.path(), Trust{}, std::nullopt);
    CHECK(theirs.error == EPERM);
    CHECK(theirs.why.find("4242") != std::string::npos);
    CHECK(theirs.why.find("W4MOE_CACHE_SHARED=1") != std::string::npos);
  } else {
    CHECK(foreign.error == EPERM);
  }
}

TEST_CASE("C08: a symbolic link is followed on the way if it is ours, never as the directory itself") {
  const TempDir dir;
  fs::create_directories(dir / "real/cache");
  fs::create_directory_symlink(dir / "real", dir / "link");
  fs::create_directory_symlink("real", dir / "relative");
  fs::create_directory_symlink("loop", dir / "loop");
  CHECK(open_error(dir / "link/cache") == 0);
  CHECK(open_error(dir / "relative/cache") == 0);
  CHECK(open_error(dir / "loop/cache") == ELOOP);
  for (const bool shared : {false, true}) {
    const OpenedDir link = open_trusted_dir(dir / "link", Trust{::geteuid(), shared}, std::nullopt);
    CHECK(link.error == EPERM);
    CHECK(link.why.find(dir / "real") != std::string::npos);
  }
  CHECK(open_error(dir / "link/.") == EPERM);
}

TEST_CASE("only regular, trusted files of a sane size are read") {
  const TempDir dir;
  write_text(dir / "good", "text");
  ::chmod((dir / "good").c_str(), 0644);
  write_text(dir / "writable", "text");
  ::chmod((dir / "writable").c_str(), 0666);
  fs::create_symlink("good", dir / "link");
  fs::create_directory(dir / "directory");
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  const UniqueFd fd(open_dir(dir.path()));
  const auto state = [&](const std::string& name, const Trust& trust = {}) {
    return read_trusted_file(fd.get(), name, trust, 4).state;
  };
  using State = ReadFile::State;
  CHECK(state("good") == State::ok);
  CHECK(state("missing") == State::absent);
  CHECK(state("writable") == State::refused);
  CHECK(state("writable", Trust{::geteuid(), true}) == State::ok);
  CHECK(state("link") == State::refused);
  CHECK(state("link", Trust{::geteuid(), true}) == State::refused);
  CHECK(state("directory") == State::refused);
  CHECK(state("fifo") == State::refused);  // and does not block
  CHECK(read_trusted_file(fd.get(), "good", {}, 3).state == State::refused);
}

TEST_CASE("a publish that fails at any step leaves the old file and no temporary one") {
  const TempDir dir;
  fs::create_directories(dir / "tmp");
  fs::create_directories(dir / "obj");
  const UniqueFd tmp(open_dir(dir / "tmp")), obj(open_dir(dir / "obj"));
  REQUIRE(publish_file(tmp.get(), obj.get(), "x", bytes("old"), 0640) == 0);
  CHECK(mode_of(dir / "obj/x") == 0640);
  for (const auto step : {PublishStep::temp_created, PublishStep::half_written, PublishStep::written,
                          PublishStep::synced, PublishStep::ready}) {
    const int error = publish_file(tmp.get(), obj.get(), "x", bytes("new"), 0600,
                                   [&](PublishStep at) { return at == step ? ENOSPC : 0; });
    CHECK(error == ENOSPC);
    CHECK(read_text(dir / "obj/x") == "old");
    CHECK(files_below(dir.path()) == std::vector<std::string>{"obj/x"});
  }
  REQUIRE(publish_file(tmp.get(), obj.get(), "x", bytes("new"), 0600) == 0);
  CHECK(read_text(dir / "obj/x") == "new");
}

TEST_CASE("a publish does not write through a planted link") {
  const TempDir dir;
  fs::create_directories(dir / "tmp");
  write_text(dir / "victim", "precious");
  fs::create_symlink("victim", dir / "x");
  const UniqueFd tmp(open_dir(dir / "tmp")), obj(open_dir(dir.path()));
  REQUIRE(publish_file(tmp.get(), obj.get(), "x", bytes("new"), 0600) == 0);
  CHECK(read_text(dir / "victim") == "precious");
  CHECK(read_text(dir / "x") == "new");
}

TEST_CASE("a file is removed only if it is still the one that was seen") {
  const TempDir dir;
  const UniqueFd fd(open_dir(dir.path()));
  write_text(dir / "x", "old");
  struct stat seen {};
  REQUIRE(::fstatat(fd.get(), "x", &seen, 0) == 0);
  fs::rename(dir / "x", dir / "kept");  // keeps the inode number from being used again
  write_text(dir / "x", "new");
  CHECK_FALSE(unlink_if_same(fd.get(), "x", seen));
  CHECK(fs::exists(dir / "x"));
  CHECK(unlink_if_same(fd.get(), "kept", seen));
  CHECK_FALSE(unlink_if_same(fd.get(), "missing", seen));
}
