#include "generator/render/bundle.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/support/catch.hpp"

using w4moe::bundle_digest;
using w4moe::template_bundle;
using w4moe::TemplateFile;

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("the library carries every template file byte for byte and nothing else") {
  namespace fs = std::filesystem;
  std::set<std::string> on_disk;
  for (const auto& entry : fs::recursive_directory_iterator(W4MOE_TEMPLATES_DIR)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".h" || extension == ".cuh") on_disk.insert(fs::relative(entry.path(), W4MOE_TEMPLATES_DIR).string());
  }
  std::set<std::string> embedded;
  for (const TemplateFile& file : template_bundle()) {
    embedded.insert(file.path);
    INFO(file.path);
    CHECK(file.text == read_file(fs::path(W4MOE_TEMPLATES_DIR) / file.path));
  }
  CHECK(embedded == on_disk);
  CHECK(embedded.size() == template_bundle().size());
  CHECK(std::is_sorted(template_bundle().begin(), template_bundle().end(),
                       [](const auto& a, const auto& b) { return a.path < b.path; }));
}

TEST_CASE("every include of a template names another template") {
  std::set<std::string> names = {"w4moe_variant.h"};
  for (const TemplateFile& file : template_bundle()) names.insert(file.path);
  for (const TemplateFile& file : template_bundle()) {
    for (std::size_t at = file.text.find("\n#include "); at != std::string::npos; at = file.text.find("\n#include ", at + 1)) {
      const std::string line = file.text.substr(at + 10, file.text.find('\n', at + 1) - at - 10);
      if (line == "W4MOE_OPS_HEADER") continue;  // only where a host build defines it
      INFO(file.path << " includes " << line);
      REQUIRE(line.size() > 2);
      CHECK(line.front() == '"');
      CHECK(names.count(line.substr(1, line.rfind('"') - 1)) == 1);
    }
  }
}

TEST_CASE("C13: the digest changes with any byte, any path and any file, and with nothing else") {
  const std::vector<TemplateFile> files = {{"a.h", "one"}, {"b/c.h", "two"}};
  const std::string digest = bundle_digest(files);
  CHECK(digest.size() == 32);
  CHECK(digest == bundle_digest(std::vector<TemplateFile>{files[1], files[0]}));
  CHECK(digest != bundle_digest(std::vector<TemplateFile>{{"a.h", "onE"}, {"b/c.h", "two"}}));
  CHECK(digest != bundle_digest(std::vector<TemplateFile>{{"a.H", "one"}, {"b/c.h", "two"}}));
  CHECK(digest != bundle_digest(std::vector<TemplateFile>{{"a.h", "one"}}));
  CHECK(digest != bundle_digest(std::vector<TemplateFile>{{"a.h", "one"}, {"b/c.h", "two"}, {"d.h", ""}}));
  // Bytes that wander from one field to the next.
  CHECK(bundle_digest(std::vector<TemplateFile>{{"ab", "c"}}) != bundle_digest(std::vector<TemplateFile>{{"a", "bc"}}));
  CHECK(bundle_digest(std::vector<TemplateFile>{{"a", "bc"}}) != bundle_digest(std::vector<TemplateFile>{{"a", "b"}, {"c", ""}}));
}

TEST_CASE("the digest of the library's templates is the digest of the files on disk") {
  std::vector<TemplateFile> files;
  for (const TemplateFile& file : template_bundle())
    files.push_back({file.path, read_file(std::filesystem::path(W4MOE_TEMPLATES_DIR) / file.path)});
  CHECK(bundle_digest() == bundle_digest(files));
}

TEST_CASE("the digest is the same in every build: its value for a fixed set of files") {
  // Recorded once: a changed digest function would empty every cache that is shared between builds.
  CHECK(bundle_digest(std::vector<TemplateFile>{{"a.h", "one"}, {"b/c.h", "two"}}) == "d3d38890064d6706061539b1f5467a02");
}
