// Every number that decides whether two builds fit together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace w4moe::cli {

/// Names and values, the project's version first; an unknown revision is empty.
std::vector<std::pair<std::string, std::string>> versions();

/// The same as a JSON object.
nlohmann::ordered_json versions_json();

}  // namespace w4moe::cli
