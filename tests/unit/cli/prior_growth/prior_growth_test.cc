#include "tools/cli/prior_growth/prior_growth.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/retry_after.h"
#include "common/drafting/ngram_counts.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kNoLimit = 1 << 20;

using OnDelta = absl::FunctionRef<absl::Status(const GenerationDelta&)>;

// A target that keeps what it was asked for and answers with `answer`.
class FakeTarget {
 public:
  using Answer = std::function<absl::Status(const GenerationRequest&, OnDelta)>;
  explicit FakeTarget(Answer answer) : answer_(std::move(answer)) {}

  PriorGrowth::Target Ask() {
    return [this](const GenerationRequest& request,
                  OnDelta on_delta) -> absl::StatusOr<GenerationSummary> {
      {
        absl::MutexLock lock(&mu_);
        requests_.push_back(request);
      }
      const absl::Status status = answer_(request, on_delta);
      if (!status.ok()) return status;
      return GenerationSummary();
    };
  }
  std::vector<GenerationRequest> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  const Answer answer_;
  absl::Mutex mu_;
  std::vector<GenerationRequest> requests_;
};

GenerationDelta Delta(std::vector<TokenId> tokens) {
  GenerationDelta delta;
  delta.text = "x";
  delta.token_ids = std::move(tokens);
  return delta;
}

// Says tokens 5 6.
absl::Status Speak(const GenerationRequest&, OnDelta on_delta) {
  return on_delta(Delta({5, 6}));
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
  FakeTarget target(Speak);
  WrittenText written(kNoLimit);
  GrowthOptions options = OneAtATime();
  options.max_tokens = 9;
  options.seed = 40;
  options.cache_scope = "own";
  PriorGrowth growth(options, prompts, target.Ask(), written);
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
  FakeTarget target(Speak);
  WrittenText written(/*max_tokens=*/6);
  GrowthOptions options = OneAtATime();
  options.temperature = 0.5f;
  PriorGrowth growth(options, prompts, target.Ask(), written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));

  const auto requests = target.requests();
  ASSERT_THAT(requests, SizeIs(3));  // then the text is full
  EXPECT_EQ(requests[2].text, requests[0].text);
  EXPECT_NE(requests[2].sampling.seed, requests[0].sampling.seed);
  EXPECT_EQ(requests[2].sampling.temperature, 0.5f);
}

TEST(PriorGrowthTest, EveryPromptIsTakenOnceByManyThreads) {
  const std::vector<FilePrompt> prompts(100, FilePrompt{"a"});
  FakeTarget target(Speak);
  WrittenText written(kNoLimit);
  GrowthOptions options;
  options.concurrency = 8;
  PriorGrowth growth(options, prompts, target.Ask(), written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_EQ(written.outputs(), 100);
  EXPECT_EQ(written.tokens(), 200);
}

TEST(PriorGrowthTest, TriesAgainWhereTheTargetIsFull) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"a"}};
  std::atomic<int> calls{0};
  FakeTarget target([&](const GenerationRequest& request, OnDelta on_delta) {
    if (calls++ == 0) {
      return WithRetryAfter(absl::ResourceExhaustedError("full"),
                            absl::Milliseconds(1));
    }
    return Speak(request, on_delta);
  });
  WrittenText written(kNoLimit);
  PriorGrowth growth(OneAtATime(), prompts, target.Ask(), written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(growth.refused(), 0);
}

TEST(PriorGrowthTest, LeavesOutAPromptThatIsRefused) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"long"}, FilePrompt{"b"}};
  FakeTarget target([](const GenerationRequest& request, OnDelta on_delta) {
    return request.text == "long" ? absl::InvalidArgumentError("too long")
                                  : Speak(request, on_delta);
  });
  WrittenText written(kNoLimit);
  PriorGrowth growth(OneAtATime(), prompts, target.Ask(), written);
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_EQ(growth.refused(), 1);
  EXPECT_EQ(written.outputs(), 1);
}

TEST(PriorGrowthTest, GivesUpWhereEverythingIsRefused) {
  const std::vector<FilePrompt> prompts = {FilePrompt{"a"}};
  FakeTarget target([](const GenerationRequest&, OnDelta) {
    return absl::InvalidArgumentError("no such mode");
  });
  WrittenText written(kNoLimit);
  GrowthOptions options = OneAtATime();
  options.time = absl::InfiniteDuration();
  options.temperature = 1.0f;  // the prompts alone would never end
  PriorGrowth growth(options, prompts, target.Ask(), written);
  const absl::Status status = growth.Run(NoProgress);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such mode"));
}

TEST(PriorGrowthTest, KeepsWhatWasWrittenWhenItIsStopped) {
  const std::vector<FilePrompt> prompts(3, FilePrompt{"a"});
  PriorGrowth* running = nullptr;
  FakeTarget target([&](const GenerationRequest&, OnDelta on_delta) {
    FORETOKEN_EXPECT_OK(on_delta(Delta({7})));
    running->Stop();
    return on_delta(Delta({8}));
  });
  WrittenText written(kNoLimit);
  PriorGrowth growth(OneAtATime(), prompts, target.Ask(), written);
  running = &growth;
  FORETOKEN_ASSERT_OK(growth.Run(NoProgress));
  EXPECT_THAT(target.requests(), SizeIs(1));
  EXPECT_THAT(written.TakeCorpus(), ElementsAre(7, 8, kDocumentBorder));
}

TEST(PriorGrowthTest, EndsWithTheTimeThatItWasGiven) {
  const std::vector<FilePrompt> prompts(100, FilePrompt{"a"});
  std::atomic<int64_t> seconds{0};
  FakeTarget target([&](const GenerationRequest& request, OnDelta on_delta) {
    seconds += 10;
    return Speak(request, on_delta);
  });
  WrittenText written(kNoLimit);
  GrowthOptions options = OneAtATime();
  options.time = absl::Seconds(30);
  PriorGrowth growth(options, prompts, target.Ask(), written, [&] {
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
