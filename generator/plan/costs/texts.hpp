// The files of costs beside this one, as text.
#pragma once

#include <string_view>
#include <vector>

namespace w4moe {

/// One JSON text for each *.json in generator/plan/costs, in the order of their names; alive as long as the program.
std::vector<std::string_view> cost_texts();

}  // namespace w4moe
