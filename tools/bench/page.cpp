#include "tools/bench/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "tools/bench/axes.hpp"

namespace w4moe::bench {
namespace {

constexpr std::array<const char*, 6> kColours{"#0b6e4f", "#b3541e", "#5b4b9a", "#a8324a", "#1f5f8b", "#7a6a00"};
constexpr const char* kPeerColour = "#999";

constexpr const char* kStyle = R"(
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1b1b1b; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 0 0 .3rem }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(23rem, 1fr)); gap: 1.5rem }
svg { width: 100%; height: auto } text { font: 11px system-ui, sans-serif; fill: #444 }
.axis { stroke: #999; stroke-width: 1 } .rule { stroke: #e4e4e4; stroke-width: 1 } .roof { stroke: #1b1b1b; stroke-width: 1.5; fill: none }
table { border-collapse: collapse; font-size: 13px; margin-top: 2rem; display: block; overflow-x: auto }
td, th { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #e4e4e4 }
)";

/// What an element's text may hold.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string point(Place at, const char* colour, const std::string& title, bool filled) {
  return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.4" fill="{}" stroke="{}" stroke-width="1.5"><title>{}</title></circle>)", at.x, at.y,
                     filled ? colour : "#fff", colour, escaped(title));
}

std::string line(const std::vector<Place>& places, const std::string& attributes) {
  std::string points;
  for (const Place& p : places) points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", p.x, p.y);
  return fmt::format(R"(<polyline points="{}" fill="none" {}/>)", points, attributes);
}

const char* colour_of(const std::vector<std::string>& shapes, const std::string& shape) {
  return kColours[static_cast<std::size_t>(std::find(shapes.begin(), shapes.end(), shape) - shapes.begin()) % kColours.size()];
}

std::vector<std::string> shapes_of(const Page& page) {
  std::vector<std::string> shapes;
  for (const PageRow& row : page.rows) {
    if (std::find(shapes.begin(), shapes.end(), row.shape) == shapes.end()) shapes.push_back(row.shape);
  }
  return shapes;
}

/// Fraction of the floor over tokens: 1 is the floor. Times below it, which a small layer in the L2 can have, are drawn on it.
std::string shape_chart(const Page& page, const std::string& shape, const char* colour) {
  double most_tokens = 8192;
  for (const PageRow& row : page.rows) most_tokens = std::max(most_tokens, static_cast<double>(row.tokens));
  const Axes axes(420, 230, {1, most_tokens, true}, {0, 1, false});
  std::string body = axes.frame({1, 8, 64, 512, 8192}, {0, 0.25, 0.5, 0.75, 1}, "tokens", "fraction of the floor");
  std::vector<Place> ours, theirs;
  std::string points, peer_points;
  for (const PageRow& row : page.rows) {
    if (row.shape != shape) continue;
    const auto place = [&](double us) { return axes.place(static_cast<double>(row.tokens), std::min(row.floor_us / us, 1.0)); };
    ours.push_back(place(row.us));
    std::string title = fmt::format("m = {}: {:.1f} us, {:.2f} of the floor", row.tokens, row.us, row.fraction_of_floor);
    if (row.peer_us) {
      theirs.push_back(place(*row.peer_us));
      peer_points += point(theirs.back(), kPeerColour, fmt::format("fastest peer, m = {}: {} us", row.tokens, *row.peer_us), false);
      title += fmt::format(", {:.2f}x", *row.peer_us / row.us);
    }
    points += point(ours.back(), colour, title + ", " + row.variant, true);
  }
  if (!theirs.empty()) body += line(theirs, fmt::format(R"(stroke="{}" stroke-width="1.6" stroke-dasharray="4 3")", kPeerColour));
  body += line(ours, fmt::format(R"(stroke="{}" stroke-width="1.6")", colour));
  return fmt::format("<section><h2>{}</h2>{}</section>", escaped(shape), axes.svg(body + peer_points + points, escaped(shape)));
}

/// Every cell at its arithmetic intensity, under the two roofs.
std::string roofline(const Page& page, const std::vector<std::string>& shapes) {
  double low_x = 1, high_x = 20000, low_y = 2, high_y = std::max(1200.0, 1.2 * page.roofs.tflops);
  for (const PageRow& row : page.rows) {
    const double intensity = row.flops / row.weight_bytes;
    low_x = std::min(low_x, intensity / 2);
    high_x = std::max(high_x, intensity * 2);
    for (const double us : {row.us, row.peer_us.value_or(row.us)}) {
      low_y = std::min(low_y, row.flops / us * 1e-6 / 2);
      high_y = std::max(high_y, row.flops / us * 1e-6 * 2);
    }
  }
  const Axes axes(1100, 420, {low_x, high_x, true}, {low_y, high_y, true});
  std::string body = axes.frame({1, 10, 100, 1000, 10000}, {3, 10, 30, 100, 300, 1000}, "flops per byte of touched weights", "TFLOP/s");
  const double ridge = page.roofs.tflops * 1e3 / page.roofs.read_gbps;
  const double foot = std::max(low_x, low_y * 1e3 / page.roofs.read_gbps);  // where the memory's roof enters the drawing
  std::vector<Place> roof{axes.place(foot, foot * page.roofs.read_gbps * 1e-3), axes.place(ridge, page.roofs.tflops), axes.place(high_x, page.roofs.tflops)};
  body += line(roof, R"(class="roof")");
  bool peers = false;
  for (const PageRow& row : page.rows) {
    const char* colour = colour_of(shapes, row.shape);
    const auto cell = [&](const char* who, double us, bool filled) {
      body += point(axes.place(row.flops / row.weight_bytes, row.flops / us * 1e-6), colour,
                    fmt::format("{}, {}, m = {}: {:.1f} us", who, row.shape, row.tokens, us), filled);
    };
    if (row.peer_us) cell("fastest peer", *row.peer_us, false);
    cell("w4moe", row.us, true);
    peers = peers || row.peer_us;
  }
  std::string legend;
  for (const std::string& shape : shapes) {
    legend += fmt::format(R"({}<span style="color:{}">● {}</span>)", legend.empty() ? "" : " ", colour_of(shapes, shape), escaped(shape));
  }
  return fmt::format("<section><h2>Roofline{}</h2><p>{}</p>{}</section>", peers ? ": filled w4moe, hollow the fastest peer" : "", legend, axes.svg(body, "roofline"));
}

std::string table(const Page& page, const std::vector<std::string>& shapes) {
  std::set<i64> tokens;
  for (const PageRow& row : page.rows) tokens.insert(row.tokens);
  std::string text = "<table><tr><th>m</th>";
  for (const std::string& shape : shapes) text += fmt::format("<th>{}</th>", escaped(shape));
  text += "</tr>";
  for (const i64 m : tokens) {
    text += fmt::format("<tr><th>{}</th>", m);
    for (const std::string& shape : shapes) {
      const auto row = std::find_if(page.rows.begin(), page.rows.end(), [&](const PageRow& r) { return r.shape == shape && r.tokens == m; });
      text += "<td>";
      if (row != page.rows.end()) {
        text += fmt::format("{:.1f} us, ", row->us) + (row->peer_us ? fmt::format("{:.2f}x", *row->peer_us / row->us) : fmt::format("{:.2f}", row->fraction_of_floor));
      }
      text += "</td>";
    }
    text += "</tr>";
  }
  return text + "</table>";
}

}  // namespace

std::string html_of(const Page& page) {
  const std::vector<std::string> shapes = shapes_of(page);
  const bool peers = std::any_of(page.rows.begin(), page.rows.end(), [](const PageRow& r) { return r.peer_us.has_value(); });
  std::string text = R"(<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>w4moe: whole layers</title>)";
  text += fmt::format("<style>{}</style><h1>Whole MoE layers, 4-bit weights</h1>", kStyle);
  text += fmt::format("<p>{}. Roofs: {} GB/s, {} TFLOP/s. {}</p>", escaped(page.about), page.roofs.read_gbps, page.roofs.tflops,
                      peers ? "Solid: w4moe. Dashed grey: the fastest of the peers in each cell." : "In the table: time, and fraction of the floor.");
  text += roofline(page, shapes) + R"(<div class="grid">)";
  for (const std::string& shape : shapes) text += shape_chart(page, shape, colour_of(shapes, shape));
  return text + "</div>" + table(page, shapes) + "</html>\n";
}

}  // namespace w4moe::bench
