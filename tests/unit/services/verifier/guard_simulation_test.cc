// The guard's regret in simulated time, against the best arm of those who never
// change theirs.
#include "tests/unit/services/verifier/guard_simulation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace foretoken::testing {
namespace {

constexpr double kNoise = 0.2;
constexpr double kMaxRegret = 0.02;
constexpr int kSeeds = 4;

// Milliseconds between measured rows, and beyond them in proportion.
std::function<double(double)> Table(
    std::vector<std::pair<double, double>> points) {
  return [points = std::move(points)](double rows) {
    size_t right = 1;
    while (right + 1 < points.size() && rows > points[right].first) ++right;
    const auto& [rows_a, ms_a] = points[right - 1];
    const auto& [rows_b, ms_b] = points[right];
    return ms_a + (ms_b - ms_a) * (rows - rows_a) / (rows_b - rows_a);
  };
}

// The tables are those of tests/lab/results/weights.md and README.md: 660 M
// parameters in bf16 on one thread of a Zen 4, SmolLM2 in Q4_1 on two, and the
// former on a Zen 5, whose 16 rows cost 1.41 and 64 rows 5.29 times one. The
// H200: 16 GB of weights at 4.8 TB/s, 16 GFLOP a row at 500 TFLOP/s.
std::vector<SimulatedTarget> Targets() {
  return {
      {"flat", [](double) { return 10.0; }},
      {"linear", [](double rows) { return 1.0 + 0.5 * rows; }},
      {"stepped", [](double rows) { return 6.0 * std::ceil(rows / 16); }},
      {"zen 4, 660 M",
       Table({{1, 40}, {4, 41}, {8, 50}, {16, 93}, {32, 182}, {64, 368}})},
      {"zen 4, SmolLM2", Table({{1, 4.1}, {8, 6.6}, {16, 11.3}, {64, 38.5}})},
      {"zen 5, 660 M", Table({{1, 20}, {8, 21}, {16, 28.2}, {64, 105.8}})},
      {"H200, 8 B",
       [](double rows) { return 0.3 + std::max(3.4, 0.032 * rows); }}};
}

std::vector<SimulatedDrafter> Drafters() {
  return {{"good", {0.95, 0.8, 0.5}},
          {"weak", {0.5, 0.3, 0.1}},
          {"boastful", {0.6, 0.4, 0.1}, 1.6},
          {"modest", {0.9, 0.7, 0.4}, 0.6},
          {"slow", {0.9, 0.7, 0.4}, 1.0, 0.01}};
}

const std::vector<LoadStep> kSteps = {{60, 1}, {60, 32}, {60, 1}};

class GuardSimulationTest : public ::testing::TestWithParam<int> {};

// The mean over the seeds of what is lost, for every step of the load.
std::vector<double> Regret(const SimulatedTarget& target,
                           const SimulatedDrafter& drafter, int groups) {
  std::vector<double> regret(kSteps.size(), 0);
  std::string rates;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const auto run = [&](std::optional<DraftArm> fixed) {
      return GuardSimulation(target, drafter, groups, kNoise, seed)
          .Run(kSteps, fixed);
    };
    const SimulatedRun guarded = run(std::nullopt);
    std::vector<double> best(kSteps.size(), 0);
    for (const DraftArm arm :
         {DraftArm::kOff, DraftArm::kNarrow, DraftArm::kWide}) {
      const SimulatedRun fixed = run(arm);
      for (size_t step = 0; step < kSteps.size(); ++step) {
        best[step] = std::max(best[step], fixed.rates[step]);
        if (seed == 1) {
          absl::StrAppend(&rates, " ", std::round(fixed.rates[step]));
        }
      }
    }
    for (size_t step = 0; step < kSteps.size(); ++step) {
      regret[step] += (1 - guarded.rates[step] / best[step]) / kSeeds;
    }
  }
  std::printf("%-16s %-9s %d: regret %5.2f %5.2f %5.2f %% |%s\n", target.name,
              drafter.name, groups, 100 * regret[0], 100 * regret[1],
              100 * regret[2], rates.c_str());
  return regret;
}

TEST_P(GuardSimulationTest, LosesAtMostTwoPercentToTheBestArm) {
  const SimulatedTarget target = Targets()[GetParam()];
  int index = GetParam();
  for (const SimulatedDrafter& drafter : Drafters()) {
    const int groups = 1 + index++ % 2;
    const std::vector<double> regret = Regret(target, drafter, groups);
    for (size_t step = 0; step < kSteps.size(); ++step) {
      EXPECT_LE(regret[step], kMaxRegret)
          << target.name << ", drafter " << drafter.name << ", groups "
          << groups << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GuardSimulationTest, ::testing::Range(0, 7));

}  // namespace
}  // namespace foretoken::testing
