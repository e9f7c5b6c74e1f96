// The device sources that NVRTC sees: every file of templates/, carried inside the library. No path of the machine is read.
#pragma once

#include <string>
#include <vector>

namespace w4moe {

/// One header for NVRTC: the text, and the name by which an #include finds it ("contract/shape.h").
struct TemplateFile {
  std::string path;
  std::string text;

  bool operator==(const TemplateFile&) const = default;
};

/// The files embedded into this build, in the order of their paths. Thread-safe; the reference is good for ever.
const std::vector<TemplateFile>& template_bundle();

/// Digest over the paths and bytes of a set of files, 32 hex digits (XXH3-128). The order of the files does not matter.
std::string bundle_digest(const std::vector<TemplateFile>& files);

/// Digest of template_bundle(), computed once.
const std::string& bundle_digest();

}  // namespace w4moe
