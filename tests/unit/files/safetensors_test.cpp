#include "runtime/files/safetensors.hpp"

#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <random>

#include "tests/support/catch.hpp"
#include "tests/support/mutate.hpp"
#include "tests/support/temp_dir.hpp"

namespace w4moe {
namespace {

/// A file from a header text and as much data.
std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes, i64 stated = -1) {
  const u64 length = stated < 0 ? header.size() : static_cast<u64>(stated);
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes[8 + header.size() + i] = static_cast<std::byte>(i);
  return bytes;
}

std::string fault(const std::string& header, std::size_t data_bytes, i64 stated = -1) {
  const std::vector<std::byte> bytes = file_of(header, data_bytes, stated);
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes, "x.safetensors");
  if (file) return {};
  CHECK(file.error().code == ErrorCode::corrupt);
  CHECK(file.error().message.find("x.safetensors") == 0);
  return file.error().message;
}

bool has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) == std::string::npos) {
      UNSCOPED_INFO("'" << part << "' not in: " << text);
      return false;
    }
  }
  return true;
}

TEST_CASE("a good file: tensors by name, shapes, data in place, metadata") {
  const std::vector<std::byte> bytes = file_of(
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("e":{"dtype":"U8","shape":[0,7],"data_offsets":[4,4]},"f":{"dtype":"F4","shape":[2,4],"data_offsets":[16,20]}}   )",
      20);
  const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes, "x");
  REQUIRE(file);
  REQUIRE(file->tensors().size() == 4);
  const FileTensor* b = file->find("b");
  REQUIRE(b != nullptr);
  CHECK(b->shape == std::vector<i64>{2, 3});
  CHECK(b->bytes == 12);
  CHECK(b->data[0] == std::byte{4});
  CHECK(file->find("a")->shape.empty());
  CHECK(file->find("e")->bytes == 0);
  CHECK(file->find("c") == nullptr);
  CHECK(file->metadata().at("k") == "v");
  const std::vector<std::byte> empty = file_of("{}", 0);
  CHECK(SafetensorsFile::parse(empty, "x")->tensors().empty());
}

TEST_CASE("headers that lie are refused, naming tensor and numbers") {
  const auto one = [](const std::string& entry) { return "{\"t\":" + entry + "}"; };
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,5]})"), 5), {"'t'", "5 bytes", "[4]", "takes 4"}));
  CHECK(has(fault(one(R"({"dtype":"F32","shape":[4],"data_offsets":[0,4]})"), 4), {"'t'", "F32", "takes 16"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[9],"data_offsets":[0,9]})"), 8), {"'t'", "0..9", "8 bytes"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[2],"data_offsets":[4,2]})"), 8), {"'t'", "4..2"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[2],"data_offsets":[-1,1]})"), 8), {"'t'", "data_offsets"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[2],"data_offsets":[0,18446744073709551615]})"), 8), {"'t'", "data_offsets"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2,4]})"), 8), {"'t'", "data_offsets"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[4294967296,4294967296,2],"data_offsets":[0,2]})"), 2), {"'t'", "overflows"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[1.5],"data_offsets":[0,1]})"), 1), {"'t'", "1.5"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})"), 1), {"'t'", "-1"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":2,"data_offsets":[0,1]})"), 1), {"'t'", "no shape"}));
  CHECK(has(fault(one(R"({"dtype":"F7","shape":[1],"data_offsets":[0,1]})"), 1), {"'t'", "F7"}));
  CHECK(has(fault(one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})"), 2), {"'t'", "whole bytes"}));
  CHECK(has(fault(one(R"({"dtype":8,"shape":[1],"data_offsets":[0,1]})"), 1), {"'t'", "no dtype"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1})"), 1), {"'t'", "more"}));
  CHECK(has(fault(one("[]"), 0), {"'t'", "no JSON object"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})"), 3), {"3 bytes of data", "take 1"}));
  CHECK(has(fault(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6),
            {"'b'", "begins at 2", "ends at 4"}));
  CHECK(has(fault(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6),
            {"'b'", "gap"}));
  CHECK(has(fault(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
            {"'a'", "twice"}));
  CHECK(has(fault(one(R"({"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]})"), 1), {"'shape'", "twice"}));
  CHECK(has(fault(R"({"__metadata__":{"n":1}})", 0), {"'n'", "no string"}));
  CHECK(has(fault("[1]", 0), {"no JSON object"}));
  CHECK(has(fault("{\"a\":", 0), {"not JSON"}));
  CHECK(has(fault("{\"\xff\":1}", 0), {"not JSON"}));
}

TEST_CASE("lengths that lie are refused before anything is read") {
  CHECK(has(fault("{}", 0, 3), {"header of 3 bytes", "has 2"}));
  CHECK(has(fault("{}", 4, INT64_MAX), {"9223372036854775807"}));
  const std::vector<std::byte> all_ones(16, std::byte{0xff});
  CHECK_FALSE(SafetensorsFile::parse(all_ones, "x"));
  for (std::size_t bytes = 0; bytes < 8; ++bytes) CHECK_FALSE(SafetensorsFile::parse(std::span(all_ones).first(bytes), "x"));
  std::vector<std::byte> large(static_cast<std::size_t>(kMaxSafetensorsHeaderBytes) + 16);
  const u64 length = static_cast<u64>(kMaxSafetensorsHeaderBytes) + 1;
  std::memcpy(large.data(), &length, 8);
  CHECK(has(SafetensorsFile::parse(large, "x").error().message, {"at most 100000000"}));
}

TEST_CASE("a nest of brackets as deep as the header is refused without recursion") {
  for (const std::string& deep : {std::string(2'000'000, '['), "{\"a\":{\"shape\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}}",
                                  R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}}"}) {
    CHECK_FALSE(fault(deep, 0).empty());
  }
}

TEST_CASE("writing and reading back, on disk") {
  const test::TempDir dir;
  const std::string path = (dir.path() / "a.safetensors").string();
  const std::vector<float> f{1.5f, -2.0f};
  const std::vector<u8> u{1, 2, 3};
  const std::vector<FileTensor> tensors{
      {"z", "F32", {2, 1}, reinterpret_cast<const std::byte*>(f.data()), 8},
      {"a", "U8", {3}, reinterpret_cast<const std::byte*>(u.data()), 3},
      {"none", "I64", {0}, nullptr, 0},
  };
  REQUIRE(write_safetensors(path, tensors, {{"limit", "7"}}));
  REQUIRE(write_safetensors(path, tensors, {{"limit", "7"}}));  // over an existing file
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  REQUIRE(file);
  CHECK(file->tensors().size() == 3);
  CHECK(std::memcmp(file->find("z")->data, f.data(), 8) == 0);
  CHECK(std::memcmp(file->find("a")->data, u.data(), 3) == 0);
  CHECK(file->metadata().at("limit") == "7");
  CHECK(reinterpret_cast<std::uintptr_t>(file->find("z")->data) % 64 == 0);
  i64 files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++files;
  CHECK(files == 1);

  CHECK(has(SafetensorsFile::open(path + "x").error().message, {"a.safetensorsx", "cannot be opened"}));
  CHECK_FALSE(SafetensorsFile::open(dir.path().string()));
  CHECK_FALSE(write_safetensors((dir.path() / "no" / "b").string(), tensors));
  std::ofstream((dir.path() / "empty").string());
  CHECK(SafetensorsFile::open((dir.path() / "empty").string()).error().code == ErrorCode::corrupt);
  std::vector<FileTensor> bad = tensors;
  bad[0].bytes = 7;
  CHECK_FALSE(write_safetensors(path, bad));
  bad = tensors;
  bad[1].name = "z";
  CHECK_FALSE(write_safetensors(path, bad));
  CHECK(SafetensorsFile::open(path));  // the old one is still there
}

TEST_CASE("damaged headers never read outside the file") {
  const std::string good =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  std::mt19937 rng(7);
  i64 accepted = 0;
  for (i64 round = 0; round < 20000; ++round) {
    const std::string header =
        test::mutate(good, rng, {"{", "}", "[", "\"a\"", "18446744073709551616", "9223372036854775807", "-1", "4", "16", "\"U8\"", "null", "1e3"});
    const std::vector<std::byte> bytes = file_of(header, 16, rng() % 8 == 0 ? static_cast<i64>(rng() % 300) : -1);
    const Result<SafetensorsFile> file = SafetensorsFile::parse(bytes, "x");
    if (!file) continue;
    ++accepted;
    for (const FileTensor& tensor : file->tensors()) {
      const bool inside = tensor.bytes == 0 || (tensor.data >= bytes.data() + 8 && tensor.data + tensor.bytes <= bytes.data() + bytes.size());
      REQUIRE(inside);
    }
  }
  CHECK(accepted > 0);
}

}  // namespace
}  // namespace w4moe
