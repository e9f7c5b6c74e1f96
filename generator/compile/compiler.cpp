#include "generator/compile/compiler.hpp"

#include <fmt/format.h>

#include "contract/args.h"

namespace w4moe {

CompileRequest compile_request(const Variant& variant, const CompileOptions& options) {
  CompileRequest request;
  request.source = render(variant);
  request.arch = variant.arch;
  request.options = options;
  return request;
}

std::string source_name(const CompileRequest& request) { return request.source.entry_name + ".cu"; }

// Every release from the oldest that is served on must accept each of these, since the compiler's version is not in the key.
std::vector<std::string> compiler_options(const CompileRequest& request) {
  std::vector<std::string> options = {
      fmt::format("-arch={}", to_string(request.arch)),
      "-std=c++20",
      "-default-device",       // the contract's functions need no mark of their own
      "-minimal",              // without textures and the like: 25 ms less for each kernel
      "-no-source-include",    // or NVRTC would also look for headers in the process's working folder
      "--ptxas-options=--warn-on-spills",  // the log then tells the spilled bytes, and is empty for a good kernel
  };
  if (request.options.line_info) options.emplace_back("-lineinfo");
  options.insert(options.end(), request.options.extra.begin(), request.options.extra.end());
  return options;
}

std::vector<std::pair<std::string, std::string>> key_fields(const CompileRequest& request) {
  std::vector<std::pair<std::string, std::string>> fields;
  visit_key_fields(request, [&](std::string_view label, std::string_view value) { fields.emplace_back(label, value); });
  return fields;
}

namespace compile_detail {

std::string bundle_digest_of(const CompileRequest& request) {
  return request.templates ? bundle_digest(*request.templates) : bundle_digest();
}
std::string layout_version_text() { return fmt::format("{}", kLayoutVersion); }
std::string args_version_text() { return fmt::format("{}", kArgsVersion); }

}  // namespace compile_detail
}  // namespace w4moe
