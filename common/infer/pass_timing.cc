#include "common/infer/pass_timing.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// Weight of the newest pass in the moving averages.
constexpr double kNewest = 0.1;
// A single pass counts as at most this multiple of the average.
constexpr double kMostOfAverage = 4.0;

absl::StatusOr<absl::Duration> TimeOf(Backend& backend, SessionId session,
                                      int32_t rows) {
  // The cost of a pass does not depend on which tokens it reads.
  const std::vector<TokenId> tokens(rows, 0);
  std::vector<int32_t> parents(rows);
  for (int32_t i = 0; i < rows; ++i) parents[i] = i - 1;
  PassSession part;
  part.session = session;
  part.tokens = tokens;
  part.parents = parents;
  PassResult result;
  const absl::Time start = MonotonicNow();
  FORETOKEN_RETURN_IF_ERROR(backend.Forward({part}, result));
  return MonotonicNow() - start;
}

}  // namespace

// Class 2k ends at 2^k rows, class 2k - 1 at 3/4 of that.
int PassTiming::ClassOf(int32_t rows) {
  int32_t power = 1;
  int index = 0;
  for (; power < rows && index < kClasses - 2; power *= 2) index += 2;
  return power / 4 * 3 >= rows ? index - 1 : index;
}

void PassTiming::Observe(int32_t rows, absl::Duration took) {
  double seconds = absl::ToDoubleSeconds(took);
  if (rows <= 0 || seconds <= 0) return;
  const double count = rows;
  Point& point = classes_[ClassOf(rows)];
  if (point.rows == 0) point = {count, seconds};
  // One stall must not distort a class for a long time.
  // A class that is new has its own value as the average.
  seconds = std::min(seconds, kMostOfAverage * point.seconds);
  point.rows += kNewest * (count - point.rows);
  point.seconds += kNewest * (seconds - point.seconds);
}

double PassTiming::Seconds(double rows) const {
  Point before;
  for (const Point& point : classes_) {
    if (point.rows == 0) continue;
    // Times never fall with rows: noise must not make more rows look cheaper.
    const double seconds = std::max(point.seconds, before.seconds);
    if (point.rows >= rows) {
      if (before.rows == 0) return seconds;
      const double part = (rows - before.rows) / (point.rows - before.rows);
      return before.seconds + part * (seconds - before.seconds);
    }
    before = {point.rows, seconds};
  }
  // Beyond the last class in proportion, an upper bound where a fixed part
  // exists.
  return before.rows == 0 ? 0 : before.seconds * rows / before.rows;
}

std::vector<PassTiming::Point> PassTiming::points() const {
  std::vector<Point> points;
  for (const Point& point : classes_) {
    if (point.rows > 0) points.push_back(point);
  }
  return points;
}

absl::StatusOr<PassTiming> PassTiming::Measure(Backend& backend,
                                               int32_t max_rows,
                                               absl::Duration budget) {
  static_assert(kRootParent == -1);
  PassTiming timing;
  const int32_t most =
      std::min({max_rows, backend.max_rows(), backend.config().max_positions});
  const TokenId prompt[] = {0};
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                             backend.Open("", prompt));
  const absl::Time end = MonotonicNow() + budget;
  absl::Status status;
  // Two points close together would give a slope that is mostly noise.
  const auto next = [most](int32_t rows) {
    if (rows == most) return most + 1;
    return 8 * int64_t{rows} > 3 * int64_t{most} ? most : 2 * rows;
  };
  for (int32_t rows = 1; rows <= most && status.ok() && MonotonicNow() < end;
       rows = next(rows)) {
    absl::Duration best = absl::InfiniteDuration();
    // The minimum of two runs: interference only ever adds time.
    // The very first pass pays for cold memory, so it is repeated.
    for (int run = rows == 1 ? -1 : 0; run < 2 && status.ok(); ++run) {
      // Nothing is committed, so every pass starts from the empty session.
      const auto took = TimeOf(backend, opened.session, rows);
      status = took.status();
      if (took.ok() && run >= 0) best = std::min(best, *took);
      // At least one run of each size counts even if it used up the budget.
      if (MonotonicNow() >= end) break;
    }
    if (status.ok() && best < absl::InfiniteDuration()) {
      timing.Observe(rows, best);
    }
  }
  FORETOKEN_RETURN_IF_ERROR(backend.Close(opened.session));
  FORETOKEN_RETURN_IF_ERROR(status);
  return timing;
}

}  // namespace foretoken
