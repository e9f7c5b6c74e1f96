#include "tools/cli/line_diff.hpp"

#include <algorithm>
#include <vector>

namespace w4moe::cli {
namespace {

// The table of the longest common subsequence grows with the product of the line counts.
constexpr std::size_t kMaxLines = 2000;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string line_diff(const std::string& left, const std::string& right) {
  const std::vector<std::string> a = lines_of(left);
  const std::vector<std::string> b = lines_of(right);
  if (a.size() > kMaxLines || b.size() > kMaxLines) return "- " + left + "\n+ " + right + "\n";
  // common[i][j]: lines that a from i and b from j have in common.
  std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1, 0));
  for (std::size_t i = a.size(); i-- > 0;) {
    for (std::size_t j = b.size(); j-- > 0;) {
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
    }
  }
  std::string text;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      ++i;
      ++j;
    } else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1])) {
      text += "- " + a[i++] + "\n";
    } else {
      text += "+ " + b[j++] + "\n";
    }
  }
  return text;
}

}  // namespace w4moe::cli
