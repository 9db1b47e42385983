#include "services/orchestrator/core/pass_costs.h"

#include <algorithm>
#include <cmath>

namespace foretoken::orchestrator {

namespace {

using Point = std::pair<int32_t, double>;

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
  for (const Point& point : good) {
    while (points_.size() >= 2 &&
           IsAbove(points_[points_.size() - 2], points_.back(), point)) {
      points_.pop_back();
    }
    points_.push_back(point);
  }
}

double PassCosts::At(double rows) const {
  if (points_.empty()) return 0.0;
  if (points_.size() == 1 || rows <= points_.front().first) {
    return points_.front().second;
  }
  size_t right = 1;
  while (right + 1 < points_.size() && rows > points_[right].first) ++right;
  const auto& [rows_a, cost_a] = points_[right - 1];
  const auto& [rows_b, cost_b] = points_[right];
  return cost_a + (cost_b - cost_a) * (rows - rows_a) / (rows_b - rows_a);
}

int WorthwhileNodes(absl::Span<const float> probs, const PassCosts& costs,
                    const PassLoad& load) {
  if (!costs.known()) return static_cast<int>(probs.size());
  int best = 0;
  double tokens = 1.0 + load.other_tokens;
  const auto time = [&](double nodes) {
    const double pass = costs.At(1.0 + nodes + load.other_rows);
    return pass * (1.0 + load.passes_waited) + load.overhead_ms;
  };
  double best_rate = tokens / time(0.0);
  for (size_t i = 0; i < probs.size(); ++i) {
    tokens += probs[i];
    const double rate = tokens / time(static_cast<double>(i) + 1.0);
    if (rate > best_rate) {
      best_rate = rate;
      best = static_cast<int>(i) + 1;
    }
  }
  return best;
}

}  // namespace foretoken::orchestrator
