#include "services/orchestrator/core/economics/pass_costs.h"

#include <algorithm>
#include <cmath>

namespace foretoken::orchestrator {

namespace {

using Point = std::pair<int32_t, double>;

// Share of a step's height above the convex hull that is believed.
constexpr double kStepShare = 0.75;

// A narrow tree's nodes have at least this chance, and a pass full of narrow
// trees may cost this much more than one without nodes.
constexpr float kNarrowChance = 0.3f;
constexpr double kNarrowCost = 1.1;

// Makes costs non-decreasing in rows: neighbours that would fall get their mean
// (pool adjacent violators).
void LevelNoise(std::vector<Point>& points) {
  struct Pool {
    double sum;
    size_t size;
    double mean() const { return sum / static_cast<double>(size); }
  };
  std::vector<Pool> pools;
  for (const Point& point : points) {
    pools.push_back({point.second, 1});
    while (pools.size() >= 2 &&
           pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().size += last.size;
    }
  }
  size_t at = 0;
  for (const Pool& pool : pools) {
    for (size_t i = 0; i < pool.size; ++i) points[at++].second = pool.mean();
  }
}

// Whether `middle` lies above the line from `left` to `right`.
bool IsAbove(const Point& left, const Point& middle, const Point& right) {
  return (middle.second - left.second) * (right.first - left.first) >
         (right.second - left.second) * (middle.first - left.first);
}

std::vector<Point> LowerHull(const std::vector<Point>& points) {
  std::vector<Point> hull;
  for (const Point& point : points) {
    while (hull.size() >= 2 &&
           IsAbove(hull[hull.size() - 2], hull.back(), point)) {
      hull.pop_back();
    }
    hull.push_back(point);
  }
  return hull;
}

// Between the points, and beyond the last one with the last slope.
double Interpolate(const std::vector<Point>& points, double rows) {
  if (points.empty()) return 0.0;
  // Before the first point there is no slope to trust.
  if (points.size() == 1 || rows <= points.front().first) {
    return points.front().second;
  }
  size_t right = 1;
  while (right + 1 < points.size() && rows > points[right].first) ++right;
  const auto& [rows_a, cost_a] = points[right - 1];
  const auto& [rows_b, cost_b] = points[right];
  return cost_a + (cost_b - cost_a) * (rows - rows_a) / (rows_b - rows_a);
}

}  // namespace

PassCosts::PassCosts(std::vector<Point> measured) {
  std::sort(measured.begin(), measured.end());
  std::vector<Point> good;
  for (const auto& [rows, milliseconds] : measured) {
    const bool sound =
        rows > 0 && std::isfinite(milliseconds) && milliseconds > 0;
    if (!sound || (!good.empty() && good.back().first == rows)) continue;
    good.emplace_back(rows, milliseconds);
  }
  LevelNoise(good);
  const std::vector<Point> hull = LowerHull(good);
  points_ = good;
  for (Point& point : points_) {
    // A step that is fully believed would make a node beyond it look too dear;
    // one on the hull would be taken for free.
    const double least = Interpolate(hull, point.first);
    point.second = least + kStepShare * (point.second - least);
  }
}

double PassCosts::At(double rows) const { return Interpolate(points_, rows); }

int WorthwhileNodes(absl::Span<const float> probs, const PassCosts& costs,
                    const PassLoad& load) {
  if (!costs.known()) return static_cast<int>(probs.size());
  int best = 0;
  double tokens = 1.0 + load.other_tokens;
  const auto time = [&](double rows) {
    const double pass = costs.At(rows);
    return pass * (1.0 + load.passes_waited) + load.overhead_ms;
  };
  // The rate without nodes is the one to beat.
  double best_rate = tokens / time(1.0 + load.other_rows);
  for (size_t i = 0; i < probs.size(); ++i) {
    tokens += probs[i];
    const double rate =
        tokens / time(static_cast<double>(i) + 2.0 + load.other_rows);
    if (rate > best_rate) {
      best_rate = rate;
      best = static_cast<int>(i) + 1;
    }
  }
  if (load.other_sessions <= 0) return best;
  // A step that the nodes of one session do not pay may be paid by those of
  // all, which would wait for each other below it.
  const double sessions = 1.0 + load.other_sessions;
  double own = 1.0;
  for (size_t i = 0; i < probs.size(); ++i) {
    own += probs[i];
    const int nodes = static_cast<int>(i) + 1;
    const double rate = sessions * own / time(sessions * (nodes + 1));
    if (nodes > best && rate > best_rate) {
      best_rate = rate;
      best = nodes;
    }
  }
  return best;
}

int NarrowNodes(absl::Span<const float> probs, const PassCosts& costs,
                const PassLoad& load) {
  const int most =
      std::min<int>(kMaxNarrowNodes, static_cast<int>(probs.size()));
  const double sessions = 1.0 + load.other_sessions;
  const double limit = costs.At(sessions) * kNarrowCost;
  int nodes = 0;
  while (nodes < most && probs[nodes] >= kNarrowChance) {
    // The first one is tried at any cost: the arm would be `off` without it.
    if (nodes > 0 && costs.known() &&
        costs.At(sessions * (nodes + 2)) > limit) {
      break;
    }
    ++nodes;
  }
  return nodes;
}

}  // namespace foretoken::orchestrator
