#include "generator/render/bundle.hpp"

#include <algorithm>
#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "generator/render/embedded.hpp"

namespace w4moe {
namespace {

// Lengths go in as eight little-endian bytes before what they measure, so that no two sets of files give the same stream.
void append_field(std::string& stream, const std::string& field) {
  for (int i = 0; i < 8; ++i) stream.push_back(static_cast<char>((static_cast<std::uint64_t>(field.size()) >> (8 * i)) & 0xff));
  stream += field;
}

}  // namespace

const std::vector<TemplateFile>& template_bundle() {
  static const std::vector<TemplateFile> files = [] {
    std::vector<TemplateFile> all;
    for (const render::EmbeddedFile& file : render::embedded_files())
      all.push_back({std::string(file.path), std::string(file.text)});
    return all;
  }();
  return files;
}

std::string bundle_digest(const std::vector<TemplateFile>& files) {
  std::vector<const TemplateFile*> sorted;
  for (const TemplateFile& file : files) sorted.push_back(&file);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->path < b->path; });
  std::string stream;
  for (const TemplateFile* file : sorted) {
    append_field(stream, file->path);
    append_field(stream, file->text);
  }
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(stream.data(), stream.size()));
  std::string hex;
  for (const unsigned char byte : digest.digest) {
    hex.push_back("0123456789abcdef"[byte >> 4]);
    hex.push_back("0123456789abcdef"[byte & 15]);
  }
  return hex;
}

const std::string& bundle_digest() {
  static const std::string digest = bundle_digest(template_bundle());
  return digest;
}

}  // namespace w4moe
