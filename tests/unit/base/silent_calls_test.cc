#include "common/base/silent_calls.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SilentCallsTest : public ::testing::Test {
 protected:
  // A call that holds `bytes` for `owner`.
  SilentCalls::Id Add(const std::string& owner, int64_t bytes) {
    auto share = budget_.Take(owner, bytes);
    FORETOKEN_EXPECT_OK(share);
    shares_.push_back(*std::move(share));
    return silent_.Add(owner, [this, owner, i = shares_.size() - 1] {
      shares_[i].Release();
      ended_.push_back(owner);
      return true;
    });
  }
  bool MakeRoom(const std::string& owner, int64_t count = 1) {
    now_ += absl::Seconds(1);
    return silent_.MakeRoom(owner, count);
  }

  absl::Time now_ = absl::UnixEpoch();
  ByteBudget budget_{10000};
  std::vector<ByteBudget::Share> shares_;
  std::vector<std::string> ended_;
  SilentCalls silent_{budget_, absl::Seconds(1), [this] { return now_; }};
};

TEST_F(SilentCallsTest, TheOldestOfTheOwnerThatHoldsMostEnd) {
  Add("light", 100);
  Add("heavy", 100);
  Add("heavy", 150);
  EXPECT_TRUE(MakeRoom("new"));
  EXPECT_THAT(ended_, ElementsAre("heavy"));
  EXPECT_EQ(budget_.held("heavy"), 150);
  EXPECT_TRUE(MakeRoom("new", 5));
  EXPECT_TRUE(MakeRoom("new", 5));
  EXPECT_THAT(ended_, ElementsAre("heavy", "heavy", "light"));
  EXPECT_FALSE(MakeRoom("new"));
}

TEST_F(SilentCallsTest, AnOwnerThatHoldsMostMakesRoomItself) {
  Add("other", 100);
  const auto held = budget_.Take("greedy", 1000);
  FORETOKEN_ASSERT_OK(held);
  EXPECT_FALSE(MakeRoom("greedy"));
  Add("greedy", 10);
  EXPECT_TRUE(MakeRoom("greedy", 5));
  EXPECT_THAT(ended_, ElementsAre("greedy"));
}

TEST_F(SilentCallsTest, YoungCallsAndThoseThatSpokeAreLeftAlone) {
  const SilentCalls::Id spoke = Add("a", 100);
  silent_.Remove(spoke);
  now_ += absl::Seconds(1);
  Add("a", 100);
  EXPECT_FALSE(silent_.MakeRoom("new", 1));
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(SilentCallsTest, AFloodOfCallsIsNoFloodOfSearches) {
  Add("a", 100);
  Add("a", 100);
  EXPECT_TRUE(MakeRoom("new"));
  EXPECT_FALSE(silent_.MakeRoom("new", 1));
  now_ += absl::Milliseconds(10);
  EXPECT_TRUE(silent_.MakeRoom("new", 1));
}

TEST_F(SilentCallsTest, AFloodOfOneOwnersCallsTakesNoOtherOwnersTurn) {
  Add("a", 100);
  Add("a", 100);
  EXPECT_TRUE(MakeRoom("flooder"));
  EXPECT_FALSE(silent_.MakeRoom("flooder", 1));
  now_ += absl::Milliseconds(5);
  EXPECT_FALSE(silent_.MakeRoom("flooder", 1));
  EXPECT_TRUE(silent_.MakeRoom("other", 1));
  EXPECT_THAT(ended_, ElementsAre("a", "a"));
}

TEST_F(SilentCallsTest, AnOwnerWaitsForItsTurnHoweverManyOthersAsk) {
  Add("a", 100);
  Add("a", 100);
  EXPECT_TRUE(MakeRoom("flooder"));
  now_ += absl::Milliseconds(5);
  for (int i = 0; i < 200; ++i) {
    // Those that ask hold more than the others and make no room.
    const std::string owner = absl::StrCat("owner-", i);
    const auto held = budget_.Take(owner, 200);
    FORETOKEN_ASSERT_OK(held);
    EXPECT_FALSE(silent_.MakeRoom(owner, 1));
  }
  EXPECT_FALSE(silent_.MakeRoom("flooder", 1));
  now_ += absl::Milliseconds(5);
  EXPECT_TRUE(silent_.MakeRoom("flooder", 1));
}

TEST_F(SilentCallsTest, ACallThatIsBusyIsAskedAgain) {
  bool busy = true;
  int asked = 0;
  const auto share = budget_.Take("heavy", 100);
  FORETOKEN_ASSERT_OK(share);
  silent_.Add("heavy", [&] {
    ++asked;
    return !busy;
  });
  EXPECT_FALSE(MakeRoom("other"));
  busy = false;
  EXPECT_TRUE(MakeRoom("other"));
  EXPECT_FALSE(MakeRoom("other"));  // it has ended
  EXPECT_EQ(asked, 2);
}

TEST_F(SilentCallsTest, WhatFindsNoRoomIsTriedOnceMoreAfterCallsHaveEnded) {
  Add("heavy", 7000);
  now_ += absl::Seconds(1);
  ByteBudget::Share share;
  int tries = 0;
  const auto take = [&]() -> absl::Status {
    ++tries;
    auto taken = budget_.Take("other", 5000);
    if (taken.ok()) share = *std::move(taken);
    return taken.status();
  };
  FORETOKEN_EXPECT_OK(silent_.TakeWithRoom("other", 5000, take));
  EXPECT_EQ(tries, 2);
  EXPECT_THAT(ended_, ElementsAre("heavy"));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(
      absl::IsResourceExhausted(silent_.TakeWithRoom("other", 5000, take)));
  EXPECT_EQ(tries, 3);  // there is no silent call
}

}  // namespace
}  // namespace foretoken
