#include <filesystem>
#include <set>

#include "cache/key.hpp"
#include "contract/args.h"
#include "generator/compile/compiler.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/env_guard.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/generator_compile/variants.hpp"

using namespace w4moe;

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

Fields fields_of(const Variant& variant) { return key_fields(compile_request(variant)); }

std::string value_of(const Fields& fields, const std::string& label) {
  for (const auto& [name, value] : fields)
    if (name == label) return value;
  return "(none)";
}

}  // namespace

TEST_CASE("the key fields and their order") {
  const CompileRequest request = compile_request(test::fc1_nvfp4());
  const Fields fields = key_fields(request);
  std::vector<std::string> labels;
  for (const auto& field : fields)
    if (field.first != "option") labels.push_back(field.first);
  CHECK(labels == std::vector<std::string>{"layout_version", "args_version", "bundle", "variant", "entry", "arch", "output"});
  CHECK(value_of(fields, "layout_version") == std::to_string(kLayoutVersion));
  CHECK(value_of(fields, "args_version") == std::to_string(kArgsVersion));
  CHECK(value_of(fields, "bundle") == bundle_digest());
  CHECK(value_of(fields, "variant") == request.source.variant_text);
  CHECK(value_of(fields, "entry") == request.source.entry_text);
  CHECK(value_of(fields, "arch") == "sm_90a");
  CHECK(value_of(fields, "output") == "cubin");
  std::vector<std::string> options;
  for (const auto& field : fields)
    if (field.first == "option") options.push_back(field.second);
  CHECK(options == compiler_options(request));
}

TEST_CASE("C13: each input of the compiler changes the key fields") {
  const CompileRequest base = compile_request(test::fc1_nvfp4());
  std::set<Fields> seen = {key_fields(base)};
  const auto is_new = [&](auto change) {
    CompileRequest request = base;
    change(request);
    return seen.insert(key_fields(request)).second;
  };
  const auto is_new_variant = [&](auto change) {
    Variant variant = test::fc1_nvfp4();
    change(variant);
    return seen.insert(fields_of(variant)).second;
  };
  CHECK(is_new([](auto& r) { r.options.line_info = true; }));
  CHECK(is_new([](auto& r) { r.options.extra = {"-DX=1"}; }));
  CHECK(is_new([](auto& r) { r.options.extra = {"-DX=2"}; }));
  CHECK(is_new([](auto& r) { r.options.extra = {"-DX=1", "-DY=1"}; }));
  CHECK(is_new([](auto& r) { r.options.extra = {"-DY=1", "-DX=1"}; }));
  CHECK(is_new([](auto& r) { r.arch = Arch::sm_100a; }));
  CHECK(is_new([](auto& r) { r.source.entry_text += " "; }));
  CHECK(is_new([](auto& r) {
    // A header that only another header includes.
    auto files = std::make_shared<std::vector<TemplateFile>>(template_bundle());
    for (TemplateFile& file : *files)
      if (file.path == "contract/prelude.h") file.text += "\n";
    r.templates = files;
  }));
  CHECK(is_new_variant([](Variant& v) { v.activation = Activation::geglu_erf; }));
  CHECK(is_new_variant([](Variant& v) { v.format = kMxfp4; }));
  CHECK(is_new_variant([](Variant& v) { v.format.group_size = 32; }));
  CHECK(is_new_variant([](Variant& v) { v.hidden += 8; }));
  CHECK(is_new_variant([](Variant& v) { v.tile.stages = 4; }));
  CHECK(is_new_variant([](Variant& v) { v.kind = KernelKind::fc2; }));
}

TEST_CASE("C15: the key fields do not depend on where, when and by whom they are made") {
  const Fields before = fields_of(test::fc1_nvfp4());
  const test::TempDir dir;
  const test::EnvGuard home("HOME", dir.path().string());
  const test::EnvGuard locale("LC_ALL", std::string("tr_TR.UTF-8"));
  const test::EnvGuard zone("TZ", std::string("Asia/Tokyo"));
  const std::filesystem::path old = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const Fields after = fields_of(test::fc1_nvfp4());
  std::filesystem::current_path(old);
  CHECK(before == after);
  for (const auto& [label, value] : before) {
    CHECK(value.find(old.string()) == std::string::npos);
    CHECK(value.find(W4MOE_TEMPLATES_DIR) == std::string::npos);
  }
}

TEST_CASE("the same texts given as templates have the key of the library's own") {
  CompileRequest request = compile_request(test::fc1_nvfp4());
  const Fields own = key_fields(request);
  request.templates = std::make_shared<const std::vector<TemplateFile>>(template_bundle());
  CHECK(key_fields(request) == own);
}

TEST_CASE("the key fields go straight into the cache's key builder, whose text gives them back") {
  const CompileRequest request = compile_request(test::fc1_nvfp4());
  cache::KeyBuilder builder;
  visit_key_fields(request, [&](cache::KeyLabel label, std::string_view value) { builder.field(label, value); });
  const auto parsed = cache::parse_key_text(builder.text());
  REQUIRE(parsed);
  Fields fields;
  for (const cache::KeyField& field : *parsed) fields.emplace_back(field.label, field.value);
  CHECK(fields == key_fields(request));
}
