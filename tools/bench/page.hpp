// Measured rows, and where there are peers' cells beside them, as one self-contained HTML page: the roofline, each cell's distance to
// it, and a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/measure.hpp"

namespace w4moe::bench {

struct PageRow {
  std::string shape;
  i64 tokens = 0;
  double us = 0;
  double floor_us = 0;
  double fraction_of_floor = 0;
  double weight_bytes = 0, flops = 0;  ///< of the touched experts, for the roofline
  i64 active_experts = 0;
  std::string variant;
  std::optional<double> peer_us;       ///< the fastest peer's time in this cell
};

struct Page {
  std::string about;  ///< device, driver, date
  Roofs roofs;
  std::vector<PageRow> rows;
};

/// Every time is above zero and the roofs are known.
std::string html_of(const Page& page);

}  // namespace w4moe::bench
