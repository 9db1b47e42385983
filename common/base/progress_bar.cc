#include "common/base/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"

namespace foretoken {
namespace {

constexpr int kBarWidth = 20;
constexpr absl::Duration kTerminalInterval = absl::Milliseconds(200);
constexpr absl::Duration kLogInterval = absl::Seconds(10);

std::string Scaled(double value) {
  if (value >= 1e9) return absl::StrFormat("%.2f G", value / 1e9);
  if (value >= 1e6) return absl::StrFormat("%.2f M", value / 1e6);
  if (value >= 1e3) return absl::StrFormat("%.1f k", value / 1e3);
  return absl::StrFormat("%.0f ", value);
}

std::string ClockTime(absl::Duration duration) {
  const int64_t seconds =
      static_cast<int64_t>(std::ceil(absl::ToDoubleSeconds(duration)));
  if (seconds >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60,
                           seconds % 60);
  }
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

}  // namespace

Progress::Progress(std::string what, uint64_t total, std::string unit,
                   bool enabled)
    : what_(std::move(what)),
      total_(total),
      unit_(std::move(unit)),
      enabled_(enabled),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(MonotonicNow()),
      next_draw_nanos_(absl::ToUnixNanos(
          start_ + (terminal_ ? kTerminalInterval : kLogInterval))) {}

Progress::~Progress() {
  if (!enabled_) return;
  const std::lock_guard<std::mutex> lock(draw_mu_);
  Draw(done_.load(), MonotonicNow());
  if (terminal_) {
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, "\n", 1);
  }
}

void Progress::AdvanceTo(uint64_t done) {
  if (!enabled_) return;
  const absl::Time now = MonotonicNow();
  if (absl::ToUnixNanos(now) < next_draw_nanos_.load()) return;
  // Do not wait for a thread that is drawing: progress must not serialise the
  // workers.
  const std::unique_lock<std::mutex> lock(draw_mu_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  next_draw_nanos_ =
      absl::ToUnixNanos(now + (terminal_ ? kTerminalInterval : kLogInterval));
  Draw(done, now);
}

void Progress::Draw(uint64_t done, absl::Time now) {
  const std::string line = Line(what_, done, total_, unit_, now - start_);
  const std::string text =
      terminal_ ? absl::StrCat("\r", line, "\x1b[K") : absl::StrCat(line, "\n");
  [[maybe_unused]] const ssize_t n =
      write(STDERR_FILENO, text.data(), text.size());
}

std::string Progress::Line(const std::string& what, uint64_t done,
                           uint64_t total, const std::string& unit,
                           absl::Duration elapsed) {
  // At least 1 ms, so that the rate of the first call stays finite.
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-3);
  const double rate = static_cast<double>(done) / seconds;
  std::string line = absl::StrFormat("%-18s ", what);
  if (total == 0) {
    return absl::StrCat(line, Scaled(static_cast<double>(done)), unit, "  ",
                        Scaled(rate), unit, "/s  ", ClockTime(elapsed));
  }
  const double share =
      std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int filled = static_cast<int>(share * kBarWidth);
  absl::StrAppend(&line, "[", std::string(filled, '#'),
                  std::string(kBarWidth - filled, '-'), "] ",
                  absl::StrFormat("%3.0f %%  ", share * 100), Scaled(rate),
                  unit, "/s  ");
  if (done >= total) return absl::StrCat(line, ClockTime(elapsed), " in all");
  if (done == 0) return absl::StrCat(line, "-:-- left");
  return absl::StrCat(
      line, ClockTime(absl::Seconds(static_cast<double>(total - done) / rate)),
      " left");
}

}  // namespace foretoken
