#include "tools/bench/axes.hpp"

#include <fmt/format.h>

#include <cmath>

namespace w4moe::bench {
namespace {

constexpr double kLeft = 42, kRight = 22, kTop = 10, kBottom = 30;

bool inside(const Axis& axis, double value) { return value >= axis.low && value <= axis.high; }

}  // namespace

double Axis::share(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
}

Place Axes::place(double x, double y) const {
  return {kLeft + x_.share(x) * (width_ - kLeft - kRight), height_ - kBottom - y_.share(y) * (height_ - kTop - kBottom)};
}

std::string Axes::frame(const std::vector<double>& x_ticks, const std::vector<double>& y_ticks, const char* x_label, const char* y_label) const {
  const Place corner = place(x_.low, y_.low);
  const double right = place(x_.high, y_.low).x;
  std::string text;
  for (const double tick : y_ticks) {
    if (!inside(y_, tick)) continue;
    const double y = place(x_.low, tick).y;
    text += fmt::format(R"(<line class="rule" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/><text x="{:.1f}" y="{:.1f}" text-anchor="end">{:g}</text>)", corner.x, y, right,
                        y, corner.x - 6, y + 4, tick);
  }
  for (const double tick : x_ticks) {
    if (!inside(x_, tick)) continue;
    text += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{:g}</text>)", place(tick, y_.low).x, corner.y + 14, tick);
  }
  text += fmt::format(R"(<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", corner.x, corner.y, right, corner.y);
  text += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text><text x="{:.1f}" y="{:.1f}">{}</text>)", right, corner.y + 27, x_label, corner.x + 4, kTop + 8,
                      y_label);
  return text;
}

std::string Axes::svg(const std::string& body, const std::string& label) const {
  return fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>)", width_, height_, label, body);
}

}  // namespace w4moe::bench
