#include "tools/cli/prior_growth/prior_growth.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/retry_after.h"
#include "common/base/status_macros.h"
#include "common/drafting/ngram_counts.h"
#include "gmock/gmock.h"
#include "tests/support/fake_generator.h"
#include "tests/support/status_matchers.h"

namespace foretoken::cli {
namespace {

using ::foretoken::testing::FakeGenerator;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kNoLimit = 1 << 20;

using OnDelta = FakeGenerator::Take;

GenerationDelta Delta(std::vector<TokenId> tokens) {
  GenerationDelta delta;
  delta.text = "x";
  delta.token_ids = std::move(tokens);
  return delta;
}

// Says tokens 5 6.
absl::StatusOr<GenerationSummary> Speak(const GenerationRequest&,
                                        OnDelta on_delta) {
  FORETOKEN_RETURN_IF_ERROR(on_delta(Delta({5, 6})));
  return GenerationSummary();
}

GrowthOptions OneAtATime() {
  GrowthOptions options;
  options.concurrency = 1;
  return options;
}

void NoProgress(int64_t) {}

TEST(PriorGrowthTest, WritesOnceOnEveryPromptAtTemperatureZero) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"a"},
                                           FilePrompt{std::nullopt, {1, 2}}};
  FakeGenerator target(Speak);
  WrittenText written(kNoLimit);
  GrowthOptions options = OneAtATime();
  options.max_tokens = 9;
  options.seed = 40;
  options.cache_scope = "own";
  PriorGrowth growth(options, prompts, target, written);
  std::vector<int64_t> progress;
  FORETOKEN_ASSERT_OK(
      growth.Run([&](int64_t tokens) { progress.push_back(tokens); }));

  const auto requests = target.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[0].text, "a");
  EXPECT_EQ(requests[0].sampling.seed, 40u);
  EXPECT_EQ(requests[0].max_tokens, 9);
  EXPECT_EQ(requests[0].cache_scope, "own");
  EXPECT_FALSE(requests[1].text.has_value());
  EXPECT_THAT(requests[1].prompt, ElementsAre(1, 2));
  EXPECT_EQ(requests[1].sampling.seed, 41u);
  EXPECT_THAT(written.TakeCorpus(),
              ElementsAre(5, 6, kDocumentBorder, 5, 6, kDocumentBorder));
  EXPECT_THAT(progress, ElementsAre(2, 4));
}

TEST(PriorGrowthTest, BeginsAgainWithOtherSeedsAboveTemperatureZero) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"a"}, FilePrompt{"b"}};
  FakeGenerator target(Speak);
  WrittenText written(/*max_tokens=*/6);
  GrowthOptions options = OneAtATime();
  options.temperature = 0.5f;
  PriorGrowth growth(options, prompts, target, written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));

  const auto requests = target.requests();
  ASSERT_THAT(requests, SizeIs(3));  // then the text is full
  EXPECT_EQ(requests[2].text, requests[0].text);
  EXPECT_NE(requests[2].sampling.seed, requests[0].sampling.seed);
  EXPECT_EQ(requests[2].sampling.temperature, 0.5f);
}

TEST(PriorGrowthTest, EveryPromptIsTakenOnceByManyThreads) {
  const std::vector<FilePrompt> prompts(100, FilePrompt{"a"});
  FakeGenerator target(Speak);
  WrittenText written(kNoLimit);
  GrowthOptions options;
  options.concurrency = 8;
  PriorGrowth growth(options, prompts, target, written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_EQ(written.outputs(), 100);
  EXPECT_EQ(written.tokens(), 200);
}

TEST(PriorGrowthTest, TriesAgainWhereTheTargetIsFull) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"a"}};
  std::atomic<int> calls{0};
  FakeGenerator target([&](const GenerationRequest& request, OnDelta on_delta)
                           -> absl::StatusOr<GenerationSummary> {
    if (calls++ == 0) {
      return WithRetryAfter(absl::ResourceExhaustedError("full"),
                            absl::Milliseconds(1));
    }
    return Speak(request, on_delta);
  });
  WrittenText written(kNoLimit);
  PriorGrowth growth(OneAtATime(), prompts, target, written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(growth.refused(), 0);
}

TEST(PriorGrowthTest, LeavesOutAPromptThatIsRefused) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"long"}, FilePrompt{"b"}};
  FakeGenerator target(
      [](const GenerationRequest& request,
         OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        if (request.text == "long")
          return absl::InvalidArgumentError("too long");
        return Speak(request, on_delta);
      });
  WrittenText written(kNoLimit);
  PriorGrowth growth(OneAtATime(), prompts, target, written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_EQ(growth.refused(), 1);
  EXPECT_EQ(written.outputs(), 1);
}

TEST(PriorGrowthTest, GivesUpWhereEverythingIsRefused) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"a"}};
  FakeGenerator target([](const GenerationRequest&, OnDelta) {
    return absl::InvalidArgumentError("no such mode");
  });
  WrittenText written(kNoLimit);
  GrowthOptions options = OneAtATime();
  options.time = absl::InfiniteDuration();
  options.temperature = 1.0f;  // the prompts alone would never end
  PriorGrowth growth(options, prompts, target, written);
  const absl::Status status = growth.Run(NoProgress);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such mode"));
}

TEST(PriorGrowthTest, KeepsWhatWasWrittenWhenItIsStopped) {
  const std::vector<FilePrompt> prompts(3, FilePrompt{"a"});
  PriorGrowth* running = nullptr;
  FakeGenerator target(
      [&](const GenerationRequest&,
          OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
        running->Stop();
        FORETOKEN_RETURN_IF_ERROR(on_delta(Delta({7})));
        // Nothing more is taken, until the request is cancelled.
        while (true) FORETOKEN_RETURN_IF_ERROR(on_delta(Delta({8})));
      });
  WrittenText written(kNoLimit);
  PriorGrowth growth(OneAtATime(), prompts, target, written);
  running = &growth;
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_THAT(target.requests(), SizeIs(1));
  EXPECT_THAT(written.TakeCorpus(), ElementsAre(7, kDocumentBorder));
}

TEST(PriorGrowthTest, EndsWithTheTimeThatItWasGiven) {
  const std::vector<FilePrompt> prompts(100, FilePrompt{"a"});
  std::atomic<int64_t> seconds{0};
  FakeGenerator target([&](const GenerationRequest& request, OnDelta on_delta) {
    seconds += 10;
    return Speak(request, on_delta);
  });
  WrittenText written(kNoLimit);
  GrowthOptions options = OneAtATime();
  options.time = absl::Seconds(30);
  PriorGrowth growth(options, prompts, target, written, [&] {
    return absl::UnixEpoch() + absl::Seconds(seconds.load());
  });
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  const auto requests = target.requests();
  EXPECT_THAT(requests, SizeIs(3));
  // A target that no longer answers cannot hold it for long.
  EXPECT_GT(requests[0].deadline, absl::UnixEpoch() + options.time);
  EXPECT_LT(requests[0].deadline, absl::UnixEpoch() + 2 * options.time);
}

}  // namespace
}  // namespace foretoken::cli
