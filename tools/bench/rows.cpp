#include "tools/bench/rows.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"

namespace w4moe::bench {
namespace {

using Json = nlohmann::ordered_json;

/// The array of objects under `key`, of a document that may be anything.
Result<Json> objects_of(const std::string& text, const std::string& name, const char* key, Json* document) {
  *document = Json::parse(text, nullptr, false);
  if (!document->is_object() || !document->contains(key) || !(*document)[key].is_array()) return invalid_argument("{}: not a JSON document with \"{}\"", name, key);
  const Json& array = (*document)[key];
  for (const Json& entry : array) {
    if (!entry.is_object()) return invalid_argument("{}: \"{}\" holds something that is no object", name, key);
  }
  return array;
}

/// Members of an object; the first that is missing or of another type is remembered.
class Members {
 public:
  Members(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  double number(const char* key, bool needed = true) {
    if (const auto at = object_.find(key); at != object_.end() && at->is_number()) return at->get<double>();
    if (needed) wrong(key, "a number");
    return 0;
  }
  std::string string(const char* key) {
    if (const auto at = object_.find(key); at != object_.end() && at->is_string()) return at->get<std::string>();
    wrong(key, "a string");
    return {};
  }
  const Status& status() const { return status_; }

 private:
  void wrong(const char* key, const char* what) {
    if (status_) status_ = invalid_argument("{}: \"{}\" is not {}", where_, key, what);
  }
  const Json& object_;
  std::string where_;
  Status status_;
};

std::string text_of(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

Json json_of(const Row& row) {
  Json json = {{"shape", row.shape}, {"m", row.tokens}, {"us_graph", row.us_graph}};
  json["us_eager"] = row.us_eager ? Json(*row.us_eager) : Json();
  json["active_experts"] = row.active_experts;
  json["weight_bytes"] = row.weight_bytes;
  json["flops"] = row.flops;
  json["floor_us"] = row.floor_us ? Json(*row.floor_us) : Json();
  json["fraction_of_floor"] = row.fraction_of_floor ? Json(*row.fraction_of_floor) : Json();
  json["variant"] = row.variant;
  json["cold"] = row.cold;
  json["scratch_bytes"] = row.scratch_bytes;
  return json;
}

Result<Page> read_rows(const std::string& text, const std::string& name) {
  Json document;
  const Result<Json> rows = objects_of(text, name, "rows", &document);
  if (!rows) return rows.error();
  Page page;
  const Json about = document.value("meta", document);
  page.about = text_of(about, "gpu");
  for (const auto& [key, label] : {std::pair{"driver", "driver "}, {"nvrtc", "NVRTC "}, {"date", ""}}) {
    if (const std::string value = text_of(about, key); !value.empty()) page.about += (page.about.empty() ? "" : ", ") + (label + value);
  }
  page.roofs = roofs_of(text_of(about, "gpu"), {});
  if (const auto at = document.find("roofs"); at != document.end() && at->is_object()) {
    Members roofs(*at, name + ", roofs");
    page.roofs = {roofs.number("read_gbps"), roofs.number("tflops")};
    if (Status s = roofs.status(); !s) return s.error();
  }
  for (const Json& entry : *rows) {
    Members row(entry, fmt::format("{}, row {}", name, page.rows.size()));
    PageRow out;
    out.shape = row.string("shape");
    out.tokens = static_cast<i64>(row.number("m"));
    out.us = row.number("us_graph");
    out.floor_us = row.number("floor_us", false);
    out.fraction_of_floor = row.number("fraction_of_floor", false);
    out.weight_bytes = row.number("weight_bytes", false);
    out.flops = row.number("flops", false);
    out.variant = row.string("variant");
    out.active_experts = static_cast<i64>(row.number("active_experts"));
    if (Status s = row.status(); !s) return s.error();
    page.rows.push_back(std::move(out));
  }
  return page;
}

Status add_peers(const std::string& text, const std::string& name, Page& page) {
  Json document;
  const Result<Json> cells = objects_of(text, name, "cells", &document);
  if (!cells) return cells.error();
  std::vector<std::string> unknown;
  for (PageRow& row : page.rows) {
    const auto at = std::find_if(cells->begin(), cells->end(), [&](const Json& cell) {
      return text_of(cell, "shape") == row.shape && cell.contains("m") && cell["m"].is_number() && cell["m"].get<i64>() == row.tokens;
    });
    if (at == cells->end()) {
      unknown.push_back(fmt::format("{}, m = {}", row.shape, row.tokens));
      continue;
    }
    Members cell(*at, fmt::format("{}, cell {}, m = {}", name, row.shape, row.tokens));
    row.peer_us = cell.number("best_full_us");
    if (row.flops <= 0 || row.weight_bytes <= 0) {
      const double elements = 3 * cell.number("H") * cell.number("I");
      const double group = cell.string("format") == "mxfp4" ? 32 : 16;
      row.flops = 2 * static_cast<double>(row.tokens) * cell.number("topk") * elements;
      row.weight_bytes = static_cast<double>(row.active_experts) * elements * (0.5 + 1 / group);
    }
    if (Status s = cell.status(); !s) return s;
    if (*row.peer_us <= 0) return invalid_argument("{}: {}, m = {} took no time", name, row.shape, row.tokens);
  }
  if (unknown.empty()) return {};
  return invalid_argument("{} has no cell for {} (and {} more)", name, unknown.front(), unknown.size() - 1);
}

Status check_page(const Page& page) {
  if (page.rows.empty()) return invalid_argument("no rows to draw");
  for (const PageRow& row : page.rows) {
    const char* lacks = row.tokens <= 0 ? "tokens" : row.us <= 0 ? "a time" : row.floor_us <= 0 || !page.roofs.known() ? "a floor (--read-gbps and --tflops say what the device reaches)"
                        : row.flops <= 0 || row.weight_bytes <= 0 ? "\"weight_bytes\" and \"flops\" (--peers can tell them)" : nullptr;
    if (lacks != nullptr) return invalid_argument("{}, m = {} cannot be drawn: it lacks {}", row.shape, row.tokens, lacks);
  }
  return {};
}

}  // namespace w4moe::bench
