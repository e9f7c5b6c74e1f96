// The shape manifest: a JSON list of problems to plan and build ahead of time. schema.json beside this file is its schema.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "w4moe/plan.hpp"

namespace w4moe {

inline constexpr int kManifestSchemaVersion = 1;

struct ManifestEntry {
  Problem problem;       ///< has passed validate()
  PlanOptions options;
  std::string where;     ///< JSON pointer of the entry: "/problems/3"
};

struct Manifest {
  std::vector<ManifestEntry> entries;  ///< in file order
};

/// Reads a manifest. Strict: unknown fields (save those that begin with "x-"), fields given twice, missing ones, and values of another
/// type are errors. The one error names the file, the line and the JSON pointer, the offending value and what is accepted.
Result<Manifest> parse_manifest(std::string_view text, std::string_view file_name);

/// A manifest entry that parses to this problem and these options, on one line.
std::string manifest_entry(const Problem& problem, const PlanOptions& options = {});

}  // namespace w4moe
