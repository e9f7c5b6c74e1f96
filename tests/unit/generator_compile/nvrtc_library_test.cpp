#include "generator/compile/nvrtc_library.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "tests/support/catch.hpp"
#include "tests/support/cubin_builder.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/generator_compile/fake_nvrtc/loaded_fake.hpp"

using namespace w4moe;
using test::LoadedFake;

namespace {

/// Nothing of the machine is looked at.
NvrtcSearch nowhere() {
  NvrtcSearch search;
  search.use_loader = false;
  search.use_well_known = false;
  return search;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("NVRTC is loaded from the path that is given, before any other") {
  const test::TempDir dir;
  LoadedFake first(dir / "first");
  LoadedFake second(dir / "second");
  NvrtcSearch search = nowhere();
  search.explicit_path = first.file();
  search.environment_path = second.file();
  const auto library = NvrtcLibrary::load(search);
  REQUIRE(library);
  CHECK((*library)->path() == first.file());
  CHECK((*library)->version() == NvrtcVersion{13, 0});
  CHECK((*library)->supported_archs() == first->archs);

  search.explicit_path.clear();
  const auto by_environment = NvrtcLibrary::load(search);
  REQUIRE(by_environment);
  CHECK((*by_environment)->path() == second.file());

  SECTION("a folder will do") {
    search.explicit_path = (dir / "first").string();
    const auto by_folder = NvrtcLibrary::load(search);
    REQUIRE(by_folder);
    CHECK((*by_folder)->path() == first.file());
  }
  SECTION("and the places where the Python packages put it are looked into") {
    const LoadedFake wheel(dir / "site" / "nvidia" / "cu13" / "lib");
    NvrtcSearch by_prefix = nowhere();
    by_prefix.prefixes = {(dir / "none").string(), (dir / "site").string()};
    const auto found = NvrtcLibrary::load(by_prefix);
    REQUIRE(found);
    CHECK((*found)->path() == wheel.file());
  }
}

TEST_CASE("a path that was given and does not load is an error, not a reason to take another library") {
  const test::TempDir dir;
  const LoadedFake good(dir / "good");
  NvrtcSearch search;
  search.explicit_path = (dir / "absent" / "libnvrtc.so.13").string();
  search.environment_path = good.file();
  const auto library = NvrtcLibrary::load(search);
  REQUIRE_FALSE(library);
  CHECK(library.error().code == ErrorCode::toolchain_missing);
  CHECK(has(library.error().message, search.explicit_path));
  CHECK(has(library.error().message, "at the path that was given"));
  CHECK_FALSE(has(library.error().message, good.file()));

  search.explicit_path.clear();
  search.environment_path = (dir / "good" / "absent.so").string();
  const auto by_environment = NvrtcLibrary::load(search);
  REQUIRE_FALSE(by_environment);
  CHECK(has(by_environment.error().message, "where W4MOE_NVRTC points"));
  CHECK(has(by_environment.error().message, search.environment_path));
}

TEST_CASE("C21: a missing NVRTC is an error that names every place that was tried") {
  const test::TempDir dir;
  NvrtcSearch search = nowhere();
  search.prefixes = {(dir / "site").string()};
  const auto library = NvrtcLibrary::load(search);
  REQUIRE_FALSE(library);
  CHECK(library.error().code == ErrorCode::toolchain_missing);
  CHECK(has(library.error().message, (dir / "site").string() + "/nvidia/cu13/lib"));
  CHECK(has(library.error().message, (dir / "site").string() + "/nvidia/cuda_nvrtc/lib"));
  CHECK(has(library.error().message, "W4MOE_NVRTC"));
}

TEST_CASE("a library that is not NVRTC, or too old, says so") {
  const test::TempDir dir;
  NvrtcSearch search = nowhere();
  search.explicit_path = "libm.so.6";
  const auto other = NvrtcLibrary::load(search);
  REQUIRE_FALSE(other);
  CHECK(has(other.error().message, "it has no function nvrtc"));

  LoadedFake old(dir / "old");
  old->major = 12;
  old->minor = 4;
  search.explicit_path = old.file();
  const auto too_old = NvrtcLibrary::load(search);
  REQUIRE_FALSE(too_old);
  CHECK(has(too_old.error().message, "12.4 is older than 12.8"));
}

TEST_CASE("the build number comes from the compiler, once") {
  const test::TempDir dir;
  LoadedFake fake(dir / "fake");
  fake->probe_cubin = test::FakeCubin{.facts = {{"w4moe_fact_build", 88}}}.bytes();
  NvrtcSearch search = nowhere();
  search.explicit_path = fake.file();
  const auto library = NvrtcLibrary::load(search);
  REQUIRE(library);
  CHECK(fake->probes == 0);
  for (int i = 0; i < 3; ++i) {
    const Result<std::string> build = (*library)->build();
    REQUIRE(build);
    CHECK(*build == "13.0.88");
  }
  CHECK(fake->probes == 1);
  CHECK(fake->programs == 0);
}

TEST_CASE("C24: without its builtins NVRTC's own words come with the file, the place and the fix") {
  const test::TempDir dir;
  LoadedFake fake(dir / "fake");
  fake->status = 7;
  fake->log = "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure that it is installed correctly.";
  NvrtcSearch search = nowhere();
  search.explicit_path = fake.file();
  const auto library = NvrtcLibrary::load(search);
  REQUIRE(library);
  const Result<std::string> build = (*library)->build();
  REQUIRE_FALSE(build);
  CHECK(build.error().code == ErrorCode::toolchain_missing);
  CHECK(has(build.error().message, fake->log));
  CHECK(has(build.error().message, "cannot load its own library libnvrtc-builtins.so.13.0"));
  CHECK(has(build.error().message, "loaded from " + fake.file()));
  CHECK(has(build.error().message, "Put that file (it comes with NVRTC) into " + (dir / "fake").string()));
  // A builtins library that appears later is found: the failure is not remembered.
  fake->status = 0;
  fake->log.clear();
  fake->probe_cubin = test::FakeCubin{.facts = {{"w4moe_fact_build", 1}}}.bytes();
  CHECK((*library)->build());
}

TEST_CASE("C24: the builtins library beside NVRTC is loaded with it") {
  const test::TempDir dir;
  LoadedFake fake(dir / "fake");
  // Any library that is not loaded yet will do for it.
  std::filesystem::copy_file(fake.file(), dir / "fake" / "libnvrtc-builtins.so.13.0");
  const std::string builtins = (dir / "fake" / "libnvrtc-builtins.so.13.0").string();
  REQUIRE(dlopen(builtins.c_str(), RTLD_NOLOAD | RTLD_NOW) == nullptr);
  NvrtcSearch search = nowhere();
  search.explicit_path = fake.file();
  REQUIRE(NvrtcLibrary::load(search));
  CHECK(dlopen(builtins.c_str(), RTLD_NOLOAD | RTLD_NOW) != nullptr);
}
