#include "services/verifier/core/pass_shares.h"

#include <map>

#include "absl/time/time.h"
#include "gmock/gmock.h"

namespace foretoken::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kRows = 512;
constexpr int32_t kTextRows = 128;

// Reading the weights takes 8 ms, a row 1 ms.
PassTiming Measured() {
  PassTiming timing;
  for (int rows = 1; rows <= 512; rows *= 2) {
    timing.Observe(rows, absl::Milliseconds(8 + rows));
  }
  return timing;
}

PassDemand Round(const std::string& caller, int32_t rows, int64_t order = 0,
                 double weight = 1) {
  PassDemand demand;
  demand.caller = caller;
  demand.weight = weight;
  demand.round_rows = rows;
  demand.order = order;
  return demand;
}
PassDemand Text(const std::string& caller, int64_t rows) {
  PassDemand demand;
  demand.caller = caller;
  demand.text_rows = rows;
  return demand;
}

int32_t Sum(const std::vector<int32_t>& rows) {
  int32_t sum = 0;
  for (const int32_t each : rows) sum += each;
  return sum;
}

TEST(PassTimingTest, SecondsAreInterpolatedAndNeverFall) {
  PassTiming timing;
  EXPECT_EQ(timing.Seconds(10), 0);
  timing.Observe(4, absl::Seconds(2));
  timing.Observe(8, absl::Seconds(4));
  timing.Observe(16, absl::Seconds(3));
  EXPECT_DOUBLE_EQ(timing.Seconds(1), 2);
  EXPECT_DOUBLE_EQ(timing.Seconds(6), 3);
  EXPECT_DOUBLE_EQ(timing.Seconds(12), 4);
  EXPECT_DOUBLE_EQ(timing.Seconds(32), 8);
}

TEST(PassSharesTest, OneCallersRoundsRunInTheOrderOfTheQueueWhileTheyFit) {
  PassShares shares(100, kTextRows);
  EXPECT_THAT(shares.ChooseRounds({Round("a", 40, 3), Round("a", 40, 1),
                                   Round("a", 20, 2), Round("a", 1, 4)},
                                  Measured()),
              ElementsAre(1, 2, 0));
}

TEST(PassSharesTest, AFloodOfSessionsMayNotMakeAnothersPassTooLong) {
  PassShares shares(kRows, kTextRows);
  std::vector<PassDemand> demands;
  for (int i = 0; i < 40; ++i) demands.push_back(Round("flood", 8, i));
  demands.push_back(Round("victim", 8, 40));
  // Alone the victim's pass takes 16 ms, so it may take 32: 24 rows.
  EXPECT_THAT(shares.ChooseRounds(demands, Measured()), ElementsAre(0, 40, 1));
  // While the victim's next round is on its way, passes stay that short.
  demands.back().round_rows = 0;
  demands.back().in_flight = true;
  EXPECT_THAT(shares.ChooseRounds(demands, Measured()), ElementsAre(0, 1, 2));
  // Nothing is known of the costs, or the victim is gone: all that fits.
  EXPECT_EQ(
      PassShares(kRows, kTextRows).ChooseRounds(demands, PassTiming()).size(),
      40u);
  demands.pop_back();
  EXPECT_EQ(shares.ChooseRounds(demands, Measured()).size(), 40u);
}

TEST(PassSharesTest, ManyCallersWithARoundEachShareOnePass) {
  PassShares shares(kRows, kTextRows);
  std::vector<PassDemand> demands;
  for (int i = 0; i < 16; ++i) {
    demands.push_back(Round(std::string(1, static_cast<char>('a' + i)), 8, i));
  }
  EXPECT_EQ(shares.ChooseRounds(demands, Measured()).size(), 16u);
}

TEST(PassSharesTest, CallersOfEqualDemandAreNotHeldBack) {
  PassShares shares(kRows, kTextRows);
  std::vector<PassDemand> demands;
  for (int i = 0; i < 32; ++i) {
    demands.push_back(Round(i % 2 == 0 ? "a" : "b", 8, i));
  }
  EXPECT_EQ(shares.ChooseRounds(demands, Measured()).size(), 32u);
}

// Rows over many passes that cannot hold everything.
TEST(PassSharesTest, RowsFollowWeightsNotSessions) {
  PassShares shares(64, kTextRows);
  std::vector<PassDemand> demands;
  for (int i = 0; i < 12; ++i) demands.push_back(Round("many", 8, i));
  for (int i = 0; i < 4; ++i) demands.push_back(Round("few", 8, 100 + i));
  for (int i = 0; i < 12; ++i) demands.push_back(Round("heavy", 8, 200 + i, 2));
  std::map<std::string, int64_t> rows;
  for (int pass = 0; pass < 200; ++pass) {
    for (const size_t i : shares.ChooseRounds(demands, PassTiming())) {
      rows[demands[i].caller] += demands[i].round_rows;
    }
  }
  const double total = 200 * 64;
  EXPECT_NEAR(rows["many"] / total, 0.25, 0.01);
  EXPECT_NEAR(rows["few"] / total, 0.25, 0.01);
  EXPECT_NEAR(rows["heavy"] / total, 0.5, 0.01);
}

TEST(PassSharesTest, IdlenessEarnsNothing) {
  PassShares shares(8, kTextRows);
  const std::vector<PassDemand> busy = {Round("a", 8, 1), Text("b", 0)};
  for (int pass = 0; pass < 100; ++pass) {
    shares.ChooseRounds(busy, PassTiming());
  }
  // "b" comes back: the two alternate from now on.
  const std::vector<PassDemand> both = {Round("a", 8, 1), Round("b", 8, 2)};
  int a = 0;
  for (int pass = 0; pass < 20; ++pass) {
    a += shares.ChooseRounds(both, PassTiming()).at(0) == 0 ? 1 : 0;
  }
  EXPECT_NEAR(a, 10, 1);
}

TEST(PassSharesTest, ARoundThatDoesNotRunIsNotChargedAndGivesItsRowsToText) {
  PassShares shares(100, 100);
  const std::vector<PassDemand> demands = {Round("a", 60), Text("b", 1000)};
  EXPECT_THAT(shares.ChooseRounds(demands, PassTiming()), ElementsAre(0));
  shares.Drop(demands[0]);
  EXPECT_EQ(shares.Served("a"), 0);
  EXPECT_THAT(shares.ChooseText(demands), ElementsAre(0, 100));
}

TEST(PassSharesTest, ALongPromptTakesAsMuchTimeAsTheRoundsBesideIt) {
  PassShares shares(kRows, kTextRows);
  const std::vector<PassDemand> demands = {Round("a", 8), Text("a", 4000)};
  EXPECT_THAT(shares.ChooseRounds(demands, Measured()), ElementsAre(0));
  // 16 ms alone, 32 with the prompt: 24 rows in all.
  EXPECT_THAT(shares.ChooseText(demands), ElementsAre(0, 16));
  // Alone it takes all there is.
  EXPECT_THAT(shares.ChooseRounds({Text("a", 4000)}, Measured()), IsEmpty());
  EXPECT_THAT(shares.ChooseText({Text("a", 4000)}), ElementsAre(kRows));
}

TEST(PassSharesTest, PromptsOfSeveralCallersAdvanceTogether) {
  PassShares shares(128, kTextRows);
  const std::vector<PassDemand> demands = {Text("a", 4000), Text("a", 4000),
                                           Text("b", 4000), Text("c", 20)};
  EXPECT_THAT(shares.ChooseRounds(demands, Measured()), IsEmpty());
  const std::vector<int32_t> rows = shares.ChooseText(demands);
  // "c" would take 28 ms alone, so it may take 84: 76 rows.
  EXPECT_EQ(Sum(rows), 76);
  EXPECT_EQ(rows[3], 20);
  EXPECT_NEAR(rows[0] + rows[1], rows[2], 16);
}

TEST(PassSharesTest, AShortPromptDoesNotWaitForALongOneOfItsCaller) {
  PassShares shares(128, kTextRows);
  const std::vector<PassDemand> demands = {Text("a", 4000), Text("a", 50),
                                           Text("a", 3000)};
  shares.ChooseRounds(demands, Measured());
  EXPECT_THAT(shares.ChooseText(demands), ElementsAre(78, 50, 0));
}

TEST(PassSharesTest, EqualPromptsOfOneCallerAreReadOneAfterTheOther) {
  PassShares shares(128, kTextRows);
  const std::vector<PassDemand> demands = {Text("a", 100), Text("a", 100)};
  shares.ChooseRounds(demands, Measured());
  EXPECT_THAT(shares.ChooseText(demands), ElementsAre(100, 28));
}

}  // namespace
}  // namespace foretoken::verifier
