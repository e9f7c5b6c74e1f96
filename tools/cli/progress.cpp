#include "tools/cli/progress.hpp"

#include <fmt/format.h>

namespace w4moe::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr const char* kEraseLine = "\r\033[K";

}  // namespace

void Progress::step(int done, int total, const std::string& item) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  if (console_.bar()) {
    const int filled = total > 0 ? kBarWidth * done / total : kBarWidth;
    console_.raw(fmt::format("{}[{:#<{}}{:.<{}}] {}/{} {:.1f} s  {}", kEraseLine, "", filled, "", kBarWidth - filled, done, total, seconds, item));
    drawn_ = true;
    return;
  }
  if (console_.verbosity() < 0) return;
  if (console_.verbosity() >= 1) {
    console_.info(fmt::format("[{}/{}] {} ({:.1f} s)", done, total, item, seconds));
    return;
  }
  const int tenth = 10 * done / total;  // at most ten lines, however many kernels there are
  if (tenth == told_) return;
  told_ = tenth;
  console_.note(fmt::format("{}: {}/{} ({:.1f} s)", what_, done, total, seconds));
}

void Progress::clear() {
  if (drawn_) console_.raw(kEraseLine);
  drawn_ = false;
}

}  // namespace w4moe::cli
