// Measured rows as JSON, and back again for the page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/bench/page.hpp"

namespace w4moe::bench {

/// A row of the documents that `w4moe bench --json` and w4moe-bench write.
nlohmann::ordered_json json_of(const Row& row);

/// A document with "rows" (those of `bench`, or docs/benchmarks/h200-*.json) as what a page shows. `name` is for messages.
/// Rows that do not say how many bytes and operations they took (older documents) get them from the peers' cell.
Result<Page> read_rows(const std::string& text, const std::string& name);

/// Puts the peers' times beside the rows: a document with "cells", as docs/benchmarks/h200-peers.json.
/// invalid_argument, naming the first, where a row has no cell.
Status add_peers(const std::string& text, const std::string& name, Page& page);

/// Whether a page can be drawn: every row has a time, a floor, bytes and operations.
Status check_page(const Page& page);

}  // namespace w4moe::bench
