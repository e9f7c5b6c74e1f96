// The helpers of the tests themselves: a guard that does not restore makes every other test doubtful.
#include "tests/support/catch.hpp"
#include "tests/support/env_guard.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
using w4moe::test::EnvGuard;
using w4moe::test::TempDir;

TEST_CASE("a temporary folder is new, private and gone afterwards") {
  fs::path first_path;
  {
    TempDir first, second;
    first_path = first.path();
    CHECK(first.path() != second.path());
    CHECK(fs::is_empty(first.path()));
    CHECK(fs::status(first.path()).permissions() == fs::perms::owner_all);
    fs::create_directory(first / "deep");
    std::ofstream(first / "deep" / "file") << "x";
    fs::permissions(first / "deep", fs::perms::owner_read | fs::perms::owner_exec);
  }
  CHECK_FALSE(fs::exists(first_path));
}

TEST_CASE("an environment guard restores what was there, and what was not") {
  const char* name = "W4MOE_SUPPORT_TEST";
  ::unsetenv(name);
  {
    EnvGuard outer(name, "one");
    CHECK(std::string(std::getenv(name)) == "one");
    {
      EnvGuard inner(name, std::nullopt);
      CHECK(std::getenv(name) == nullptr);
    }
    CHECK(std::string(std::getenv(name)) == "one");
  }
  CHECK(std::getenv(name) == nullptr);
}

TEST_CASE("a skipped case ends where it says so") {
  EnvGuard by_hand("W4MOE_TEST_SKIP_CODE", std::nullopt);
  bool went_on = false;
  auto body = [&] {
    W4MOE_SKIP("to see that the rest does not run");
    went_on = true;
  };
  body();
  CHECK_FALSE(went_on);
}

TEST_CASE("a name with , ; [tag]-like \"quotes\" and \\ is one test of CTest's") { SUCCEED(); }
