#include "common/generation/blocking.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_generator.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::FakeGenerator;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

GenerationDelta Text(const std::string& text) {
  GenerationDelta delta;
  delta.text = text;
  return delta;
}

TEST(BlockingGenerateTest, DeltasComeInOrderToTheThreadThatWaits) {
  FakeGenerator generator([](const GenerationRequest&,
                             auto take) -> absl::StatusOr<GenerationSummary> {
    for (const char* text : {"a", "b", "c"}) {
      FORETOKEN_RETURN_IF_ERROR(take(Text(text)));
    }
    GenerationSummary summary;
    summary.rounds = 7;
    return summary;
  });
  GenerationRequest request;
  request.request_id = "mine";
  std::vector<std::string> texts;
  const auto summary =
      Generate(generator, request, [&](const GenerationDelta& delta) {
        texts.push_back(delta.text);  // no lock: it is this thread
        return absl::OkStatus();
      });
  FORETOKEN_ASSERT_OK(summary);
  EXPECT_EQ(summary->rounds, 7);
  EXPECT_THAT(texts, ElementsAre("a", "b", "c"));
  EXPECT_EQ(generator.requests().at(0).request_id, "mine");
}

TEST(BlockingGenerateTest, AFailureIsReturnedAfterWhatCameBeforeIt) {
  FakeGenerator generator([](const GenerationRequest&,
                             auto take) -> absl::StatusOr<GenerationSummary> {
    FORETOKEN_RETURN_IF_ERROR(take(Text("a")));
    return absl::UnavailableError("gone");
  });
  std::string text;
  EXPECT_THAT(Generate(generator, {},
                       [&](const GenerationDelta& delta) {
                         text += delta.text;
                         return absl::OkStatus();
                       }),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
  EXPECT_EQ(text, "a");
}

TEST(BlockingGenerateTest, AnErrorOfTheCallerCancelsAndIsReturned) {
  // Goes on until it is cancelled.
  FakeGenerator generator([](const GenerationRequest&,
                             auto take) -> absl::StatusOr<GenerationSummary> {
    while (true) FORETOKEN_RETURN_IF_ERROR(take(Text("a")));
  });
  int deltas = 0;
  EXPECT_THAT(Generate(generator, {},
                       [&](const GenerationDelta&) {
                         return ++deltas < 3
                                    ? absl::OkStatus()
                                    : absl::DataLossError("pipe is closed");
                       }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("pipe")));
  EXPECT_EQ(deltas, 3);
}

TEST(BlockingGenerateTest, ACallerThatIsSlowPausesTheGenerator) {
  FakeGenerator generator;
  absl::Notification read;
  std::vector<std::string> texts;
  std::thread caller([&] {
    FORETOKEN_EXPECT_OK(
        Generate(generator, {}, [&](const GenerationDelta& delta) {
          read.WaitForNotification();
          texts.push_back(delta.text);
          return absl::OkStatus();
        }));
  });
  ASSERT_TRUE(Eventually([&] { return generator.requests().size() == 1; }));
  const auto call = generator.calls.at(0);
  int written = 0;
  while (call->Write("a")) {
    ASSERT_LT(++written, 1000) << "it is never paused";
  }
  EXPECT_EQ(call->resumed, 0);
  read.Notify();
  EXPECT_TRUE(Eventually([&] { return call->resumed == 1; }));
  call->Finish();
  caller.join();
  EXPECT_THAT(texts, SizeIs(written + 1));
}

}  // namespace
}  // namespace foretoken
