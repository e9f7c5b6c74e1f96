#include "tools/cli/progress.hpp"

#include <fmt/format.h>

namespace w4moe::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr std::size_t kBarNeedsColumns = 50;

}  // namespace

void Progress::step(int done, int total, const std::string& item) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (console_.bar()) {
    const std::size_t columns = static_cast<std::size_t>(console_.columns());
    const int filled = total > 0 ? kBarWidth * done / total : kBarWidth;
    std::string text = fmt::format("{}/{} {:.1f} s  {}", done, total, seconds, item);
    if (columns >= kBarNeedsColumns) text = fmt::format("[{:#<{}}{:.<{}}] ", "", filled, "", kBarWidth - filled) + text;
    console_.draw(text.substr(0, columns - 1));  // a line that wraps could not be taken away
    return;
  }
  if (console_.verbosity() < 0) return;
  if (console_.verbosity() >= 1) {
    console_.info(fmt::format("[{}/{}] {} ({:.1f} s)", done, total, item, seconds));
    return;
  }
  const int tenth = total > 0 ? 10 * done / total : 10;  // at most ten lines, however many kernels there are
  if (tenth == told_) return;
  told_ = tenth;
  console_.note(fmt::format("{}: {}/{} ({:.1f} s)", what_, done, total, seconds));
}

void Progress::clear() { console_.draw({}); }

}  // namespace w4moe::cli
