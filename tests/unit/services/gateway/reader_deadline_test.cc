#include "services/gateway/adapters/reader_deadline.h"

#include "gtest/gtest.h"

namespace foretoken::gateway {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);
constexpr absl::Duration kMaxPause = absl::Minutes(2);

class ReaderDeadlineTest : public ::testing::Test {
 protected:
  bool Over() const { return reader_.deadline() <= now_; }

  absl::Time now_ = absl::UnixEpoch();
  ReaderDeadline reader_{kTimeout, kMaxPause};
};

TEST_F(ReaderDeadlineTest, NothingToTakeHasNoDeadline) {
  EXPECT_EQ(reader_.deadline(), absl::InfiniteFuture());
  reader_.OnOffer(now_);
  EXPECT_EQ(reader_.deadline(), now_ + kTimeout);
  reader_.OnAllTaken();
  EXPECT_EQ(reader_.deadline(), absl::InfiniteFuture());
}

TEST_F(ReaderDeadlineTest, ASlowButSteadyReaderIsNotCut) {
  // 10 MB at 20 kB a second: far longer than the timeout.
  reader_.OnOffer(now_);
  for (int second = 0; second < 500; ++second) {
    now_ += absl::Seconds(1);
    ASSERT_FALSE(Over()) << second;
    reader_.OnTaken(20000, now_);
  }
  EXPECT_GT(now_ - absl::UnixEpoch(), 10 * kTimeout);
}

TEST_F(ReaderDeadlineTest, AReaderThatTricklesIsCut) {
  reader_.OnOffer(now_);
  int seconds = 0;
  for (; seconds < 100 && !Over(); ++seconds) {
    now_ += absl::Seconds(1);
    reader_.OnTaken(100, now_);
  }
  EXPECT_EQ(seconds, 30);
}

TEST_F(ReaderDeadlineTest, PausesAddUp) {
  for (int i = 0; i < 11; ++i) {
    reader_.SetPaused(true, now_);
    now_ += absl::Seconds(10);
    reader_.SetPaused(true, now_);
    ASSERT_FALSE(Over()) << i;
    reader_.SetPaused(false, now_);
    reader_.SetPaused(false, now_);
    now_ += absl::Minutes(10);  // nobody waits
    ASSERT_FALSE(Over()) << i;
  }
  reader_.SetPaused(true, now_);
  EXPECT_EQ(reader_.deadline(), now_ + absl::Seconds(10));
  // Progress does not change it.
  reader_.OnOffer(now_);
  reader_.OnTaken(ReaderDeadline::kProgressBytes, now_);
  EXPECT_EQ(reader_.deadline(), now_ + absl::Seconds(10));
}

}  // namespace
}  // namespace foretoken::gateway
