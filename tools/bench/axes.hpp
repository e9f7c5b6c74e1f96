// A plot area of an SVG drawing: values to places.
#pragma once

#include <string>
#include <vector>

namespace w4moe::bench {

struct Place {
  double x = 0, y = 0;
};

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;

  /// 0 at the low end, 1 at the high one.
  double share(double value) const;
};

class Axes {
 public:
  Axes(double width, double height, Axis x, Axis y) : width_(width), height_(height), x_(x), y_(y) {}

  Place place(double x, double y) const;
  /// Axis, rules and labels; ticks outside the axes are left out. Labels are plain text.
  std::string frame(const std::vector<double>& x_ticks, const std::vector<double>& y_ticks, const char* x_label, const char* y_label) const;
  /// The drawing; `label` has no markup.
  std::string svg(const std::string& body, const std::string& label) const;

 private:
  double width_, height_;
  Axis x_, y_;
};

}  // namespace w4moe::bench
