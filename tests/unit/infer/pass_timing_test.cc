#include "common/infer/pass_timing.h"

#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using testing::FakeBackend;
using testing::FakeBackendOptions;

std::vector<double> RowsOf(const PassTiming& timing) {
  std::vector<double> rows;
  for (const PassTiming::Point& point : timing.points()) {
    rows.push_back(point.rows);
  }
  return rows;
}

TEST(PassTimingTest, PointsLieWhereThePassesWere) {
  PassTiming timing;
  timing.Observe(65, absl::Milliseconds(6));
  timing.Observe(1, absl::Milliseconds(1));
  ASSERT_EQ(RowsOf(timing), (std::vector<double>{1, 65}));
  EXPECT_DOUBLE_EQ(timing.points()[1].seconds, 6e-3);
  // One class: 65..96. The average follows slowly in both.
  timing.Observe(85, absl::Milliseconds(8));
  ASSERT_EQ(timing.points().size(), 2u);
  EXPECT_NEAR(timing.points()[1].rows, 67, 1e-9);
  EXPECT_NEAR(timing.points()[1].seconds, 6.2e-3, 1e-9);
}

TEST(PassTimingTest, AStallCountsAsFourAveragesAtMost) {
  PassTiming timing;
  timing.Observe(8, absl::Milliseconds(10));
  timing.Observe(8, absl::Seconds(2));
  EXPECT_NEAR(timing.points()[0].seconds, 13e-3, 1e-9);
}

TEST(PassTimingTest, NonsenseIsLeftOut) {
  PassTiming timing;
  timing.Observe(0, absl::Milliseconds(1));
  timing.Observe(4, absl::ZeroDuration());
  EXPECT_TRUE(timing.points().empty());
}

TEST(PassTimingTest, MeasuresAnIdleBackendAndLeavesItAsItWas) {
  FakeBackend backend{FakeBackendOptions()};
  const auto timing = PassTiming::Measure(backend, 65, absl::Hours(1));
  FORETOKEN_ASSERT_OK(timing);
  EXPECT_EQ(RowsOf(*timing), (std::vector<double>{1, 2, 4, 8, 16, 32, 65}));
  for (const PassTiming::Point& point : timing->points()) {
    EXPECT_GT(point.seconds, 0);
  }
  EXPECT_EQ(backend.kv_usage().sessions, 0);
  EXPECT_EQ(backend.kv_usage().pages_free, backend.kv_usage().pages_total);
}

TEST(PassTimingTest, EndsWithItsBudgetAndAtTheBackendsLimit) {
  FakeBackendOptions options;
  options.max_rows = 6;
  FakeBackend small(options);
  const auto timing = PassTiming::Measure(small, 65, absl::Hours(1));
  FORETOKEN_ASSERT_OK(timing);
  EXPECT_EQ(RowsOf(*timing), (std::vector<double>{1, 2, 4, 6}));
  const auto none = PassTiming::Measure(small, 65, absl::ZeroDuration());
  FORETOKEN_ASSERT_OK(none);
  EXPECT_TRUE(none->points().empty());
}

TEST(PassTimingTest, AFailedPassIsTheAnswer) {
  FakeBackend backend{FakeBackendOptions()};
  backend.FailNextForward(absl::ResourceExhaustedError("no memory"));
  EXPECT_TRUE(absl::IsResourceExhausted(
      PassTiming::Measure(backend, 8, absl::Hours(1)).status()));
  EXPECT_EQ(backend.kv_usage().sessions, 0);
}

}  // namespace
}  // namespace foretoken
