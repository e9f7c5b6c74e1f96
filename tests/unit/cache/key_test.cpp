#include "cache/key.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <set>

using namespace w4moe::cache;

namespace {

// The fields of a kernel's key, each of which a test changes on its own.
struct Inputs {
  std::string schema = "1", abi = "3", bundle = "0f1e2d", variant = "tile_m = 16", entry = "w4moe_fc1",
              arch = "sm_90a";
  std::vector<std::string> options = {"-std=c++20", "-DX=1"};

  KeyBuilder builder() const {
    KeyBuilder b;
    b.field("schema", schema).field("abi", abi).field("bundle", bundle).field("variant", variant);
    b.field("entry", entry).field("arch", arch);
    for (const auto& option : options) b.field("option", option);
    return b;
  }
};

}  // namespace

TEST_CASE("C13, C17: every input of a kernel changes its key, and explain names it") {
  const std::vector<std::pair<std::string, std::function<void(Inputs&)>>> axes = {
      {"schema", [](Inputs& in) { in.schema = "2"; }},
      {"abi", [](Inputs& in) { in.abi = "4"; }},
      {"bundle", [](Inputs& in) { in.bundle = "0f1e2e"; }},
      {"variant", [](Inputs& in) { in.variant = "tile_m = 32"; }},
      {"entry", [](Inputs& in) { in.entry = "w4moe_fc2"; }},
      {"arch", [](Inputs& in) { in.arch = "sm_90"; }},
      {"option", [](Inputs& in) { in.options[0] = "-std=c++17"; }},
      {"option#2", [](Inputs& in) { in.options[1] = "-DX=2"; }},
      {"option#3", [](Inputs& in) { in.options.push_back("-G"); }},
  };
  std::set<Key> keys = {Inputs{}.builder().key()};
  for (const auto& [label, change] : axes) {
    Inputs changed;
    change(changed);
    CHECK(keys.insert(changed.builder().key()).second);
    const auto differences = diff_key_texts(Inputs{}.builder().text(), changed.builder().text());
    REQUIRE(differences.size() == 1);
    CHECK(differences[0].label == label);
  }
  CHECK(diff_key_texts(Inputs{}.builder().text(), Inputs{}.builder().text()).empty());
}

TEST_CASE("fields cannot run into each other: labels, lengths and order count") {
  const auto key = [](std::initializer_list<std::pair<const char*, const char*>> options) {
    KeyBuilder b;
    for (const auto& [first, second] : options) b.field("a", first).field("b", second);
    return b.key();
  };
  CHECK(key({{"xy", "z"}}) != key({{"x", "yz"}}));
  CHECK(key({{"", "xyz"}}) != key({{"xyz", ""}}));
  CHECK(key({{"1", "2"}, {"3", "4"}}) != key({{"3", "4"}, {"1", "2"}}));
  CHECK(KeyBuilder().field("a", "x\nb[1]=y").key() != KeyBuilder().field("a", "x").field("b", "y").key());
  CHECK(KeyBuilder().field("a", "x").key() != KeyBuilder().field("b", "x").key());
}

TEST_CASE("a key text parses back to its fields, whatever the values hold") {
  KeyBuilder b;
  b.field("source", "int a[3]=\n{1};\n").field("empty", "").field("binary", std::string_view("\0\xff]=", 4));
  const auto fields = parse_key_text(b.text());
  REQUIRE(fields);
  CHECK(*fields == std::vector<KeyField>{
                       {"source", "int a[3]=\n{1};\n"}, {"empty", ""}, {"binary", std::string("\0\xff]=", 4)}});
  CHECK(b.key() == Key::of_text(b.text()));
  for (std::size_t cut = 1; cut < b.text().size(); ++cut)
    if (const auto part = parse_key_text(b.text().substr(0, cut))) CHECK(part->size() < 3);
  CHECK_FALSE(parse_key_text("a[99999999999999999999999]=x\n"));
  CHECK_FALSE(parse_key_text("[1]=x\n"));
  CHECK_FALSE(parse_key_text("a[2]=x\n"));
}

TEST_CASE("the difference of two keys has both sides, one where a field is missing") {
  const std::string a = KeyBuilder().field("arch", "sm_90").field("x", "1").text();
  const std::string b = KeyBuilder().field("arch", "sm_90a").field("y", "2").text();
  const auto differences = diff_key_texts(a, b);
  REQUIRE(differences.size() == 3);
  CHECK(differences[0].left == "sm_90");
  CHECK(differences[0].right == "sm_90a");
  CHECK(differences[1].label == "x");
  CHECK_FALSE(differences[1].right);
  CHECK(differences[2].label == "y");
  CHECK_FALSE(differences[2].left);
  CHECK(diff_key_texts("garbage", a).size() == 3);
}

TEST_CASE("hex forms of a key") {
  const Key key = Key::of_text("abc");
  CHECK(key.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(key.short_hex() == "ba7816bf8f01");
  CHECK(Key::from_hex(key.hex()) == key);
  CHECK_FALSE(Key::from_hex("ba78"));
  CHECK_FALSE(Key::from_hex(std::string(64, 'G')));
}

TEST_CASE("builders are ordered as versions and may be part of a file name") {
  CHECK(builder_less("12.9.3", "12.10.1"));
  CHECK_FALSE(builder_less("12.10.1", "12.9.3"));
  CHECK(builder_less("12.4", "12.4.131"));
  CHECK(builder_less("", "1"));
  CHECK_FALSE(builder_less("12.4.131", "12.4.131"));
  CHECK(builder_less("nvrtc_9", "nvrtc_10"));
  CHECK(valid_builder("12.4.131"));
  CHECK(valid_builder(""));
  CHECK_FALSE(valid_builder("../x"));
  CHECK_FALSE(valid_builder("a-b"));
  CHECK_FALSE(valid_builder(std::string(33, '1')));
}
