// The build step that turns template files into string literals, on texts that could upset CMake or C++.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The bytes of the index'th literal of a generated source, which are all written as \xNN.
std::string literal(const std::string& source, int index) {
  const std::string head = "kText" + std::to_string(index) + "[] =";
  const std::size_t begin = source.find(head);
  REQUIRE(begin != std::string::npos);
  const std::size_t end = source.find(';', begin);
  std::string bytes;
  for (std::size_t at = source.find("\\x", begin); at < end; at = source.find("\\x", at + 4))
    bytes.push_back(static_cast<char>(std::stoi(source.substr(at + 2, 2), nullptr, 16)));
  return bytes;
}

}  // namespace

TEST_CASE("embedding keeps every byte of every file") {
  const w4moe::test::TempDir dir;
  const std::string tricky = "a;b [c] ]] \"quoted\" \\x41 \\ ${HOME} @VAR@ )raw\" \xc3\xa9\xff\x01 %d # // /* \r\n\n\tno newline at the end";
  std::filesystem::create_directories(dir / "sub");
  std::ofstream(dir / "sub" / "tricky.h", std::ios::binary) << tricky;
  std::ofstream(dir / "empty.h");
  std::ofstream(dir / "plain.h") << "int x;\n";
  const std::string output = (dir / "out.cpp").string();
  const std::string command = std::string(W4MOE_CMAKE) + " -DROOT=" + dir.path().string() + " '-DFILES=empty.h;plain.h;sub/tricky.h' -DOUTPUT=" +
                              output + " -P " W4MOE_EMBED_SCRIPT;
  REQUIRE(std::system(command.c_str()) == 0);
  const std::string source = read_file(output);
  CHECK(literal(source, 0) == "");
  CHECK(literal(source, 1) == "int x;\n");
  CHECK(literal(source, 2) == tricky);
  CHECK(source.find("{\"sub/tricky.h\", {kText2, sizeof(kText2) - 1}}") != std::string::npos);
  CHECK(source.find("kText3") == std::string::npos);
}
