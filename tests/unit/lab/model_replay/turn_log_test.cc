#include "common/base/json.h"
#include "tests/lab/model_replay/turn_log.h"

#include <string>
#include <vector>

#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::model_replay {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

std::vector<TurnResult> Results() {
  TurnResult a;
  a.id = "q7";
  a.category = "rag";
  a.length = 40;
  a.tokens = 9;
  a.plain_tokens = 8;
  a.rounds = 3;
  a.nodes = 12;
  a.prefill = 0.5;
  a.plain = 2.25;
  a.speculative = 1.125;
  a.indexing = 0.015625;
  a.drafting = 0.0625;
  a.verifying = 0.75;
  TurnResult b = a;
  b.tokens = 10;
  b.rounds = 4;
  b.speculative = 1.5;
  return {a, b};
}

class TurnLogTest : public ::testing::Test {
 protected:
  absl::StatusOr<TurnLog> Open(const Json& header = {{"shape", "tiny"}}) {
    return TurnLog::Open(path_, header, 2);
  }
  testing::TempDir dir_;
  const std::string path_ = dir_.File("turns.jsonl");
};

TEST_F(TurnLogTest, WhatWasMeasuredIsThereAgain) {
  {
    auto log = Open();
    FORETOKEN_ASSERT_OK(log);
    EXPECT_TRUE(log->turns().empty());
    FORETOKEN_ASSERT_OK(log->Add(5, Results()));
    FORETOKEN_ASSERT_OK(log->Add(2, Results()));
  }
  auto log = Open();
  FORETOKEN_ASSERT_OK(log);
  ASSERT_EQ(log->turns().size(), 2u);
  FORETOKEN_ASSERT_OK(log->Add(3, Results()));
  log = Open();
  FORETOKEN_ASSERT_OK(log);
  ASSERT_EQ(log->turns().size(), 3u);
  for (const size_t turn : {2, 3, 5}) {
    const std::vector<TurnResult>& results = log->turns().at(turn);
    ASSERT_EQ(results.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const TurnResult want = Results()[i];
      EXPECT_EQ(results[i].id, want.id);
      EXPECT_EQ(results[i].category, want.category);
      EXPECT_EQ(results[i].length, want.length);
      EXPECT_EQ(results[i].tokens, want.tokens);
      EXPECT_EQ(results[i].plain_tokens, want.plain_tokens);
      EXPECT_EQ(results[i].rounds, want.rounds);
      EXPECT_EQ(results[i].nodes, want.nodes);
      EXPECT_EQ(results[i].prefill, want.prefill);
      EXPECT_EQ(results[i].plain, want.plain);
      EXPECT_EQ(results[i].speculative, want.speculative);
      EXPECT_EQ(results[i].indexing, want.indexing);
      EXPECT_EQ(results[i].drafting, want.drafting);
      EXPECT_EQ(results[i].verifying, want.verifying);
    }
  }
}

TEST_F(TurnLogTest, AnotherReplaysTurnsAreRefused) {
  auto log = Open();
  FORETOKEN_ASSERT_OK(log);
  FORETOKEN_ASSERT_OK(log->Add(0, Results()));
  EXPECT_THAT(Open({{"shape", "large"}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(path_ + ":1: the turns are of another")));
  EXPECT_THAT(TurnLog::Open(path_, {{"shape", "tiny"}}, 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(":2: 2 variants, want 3")));
}

TEST_F(TurnLogTest, LinesThatAreNoTurnsAreNamed) {
  dir_.Write("turns.jsonl", "{\"shape\":\"tiny\"}\n{\"turn\":1}\n");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr(path_ + ":2")));
  dir_.Write("turns.jsonl", "{\"shape\":\"tiny\"}\n{\"tu");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr(path_ + ":2")));
}

TEST_F(TurnLogTest, WithoutAPathNothingIsWritten) {
  auto log = TurnLog::Open("", {}, 2);
  FORETOKEN_ASSERT_OK(log);
  FORETOKEN_ASSERT_OK(log->Add(0, Results()));
  EXPECT_EQ(log->turns().size(), 1u);
}

}  // namespace
}  // namespace foretoken::model_replay
