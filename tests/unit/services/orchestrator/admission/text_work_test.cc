#include "services/orchestrator/core/admission/text_work.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

class TextWorkTest : public ::testing::Test {
 protected:
  void Make(const TextWorkOptions& options = {}) {
    work_ = std::make_unique<TextWork>(
        options,
        Tokenizer::LoadShared(
            dir_.Write("tokenizer.json", testing::TinyTokenizerJson()))
            .value(),
        encoding_, MonotonicClock());
  }

  const testing::TempDir dir_;
  ByteBudget encoding_{int64_t{64} << 20};
  std::unique_ptr<TextWork> work_;
};

TEST_F(TextWorkTest, ACallersTextsLeaveAThreadToOthers) {
  TextWorkOptions options;
  options.max_text_bytes = 8;
  Make(options);
  absl::Notification go;
  std::atomic<int> begun{0}, ended{0};
  const auto hold = [&](const absl::Status& admitted) {
    if (admitted.ok()) {
      ++begun;
      go.WaitForNotification();
    }
    ++ended;
  };
  constexpr int kTexts = 100;
  for (int i = 0; i < kTexts; ++i) {
    work_->Run({.name = "flood"}, 8, absl::InfiniteFuture(), hold);
  }
  absl::Status other = absl::UnknownError("not called");
  absl::Notification done;
  work_->Run({.name = "other"}, 8, absl::InfiniteFuture(),
             [&](const absl::Status& admitted) {
               other = admitted;
               done.Notify();
             });
  done.WaitForNotification();
  EXPECT_THAT(other, IsOk());
  EXPECT_TRUE(Eventually([&] { return ended > 0; })) << "the queue was full";
  EXPECT_LT(begun, kTexts);
  go.Notify();
  work_.reset();
  EXPECT_EQ(ended, kTexts);
}

TEST_F(TextWorkTest, ATextThatWaitsLeavesWhenItsCallIsCancelled) {
  Make();
  absl::Notification go;
  const auto hold = [&](const absl::Status&) { go.WaitForNotification(); };
  for (int i = 0; i < 3; ++i) {
    work_->Run({.name = "me"}, 8, absl::InfiniteFuture(), hold);
  }
  absl::Status end;
  absl::Notification ended;
  const TextWork::Ticket waiting =
      work_->Run({.name = "me"}, 8, absl::InfiniteFuture(),
                 [&](const absl::Status& status) {
                   end = status;
                   ended.Notify();
                 });
  ASSERT_NE(waiting, RequestPool::kNotWaiting);
  work_->Cancel(waiting);
  ended.WaitForNotification();
  EXPECT_THAT(end,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  go.Notify();
  work_.reset();  // its threads use `go`
}

TEST_F(TextWorkTest, ATextWithoutADeadlineDoesNotWaitForEver) {
  TextWorkOptions options;
  options.max_time = absl::Milliseconds(20);
  Make(options);
  const auto held = encoding_.Take("me", encoding_.max_share());
  FORETOKEN_ASSERT_OK(held);
  EXPECT_THAT(
      work_->Tokenize({.name = "me"}, "the", true, absl::InfiniteFuture()),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("memory")));
}

TEST_F(TextWorkTest, ACancelledCallDoesNotWaitForMemory) {
  Make();
  const auto held = encoding_.Take("me", encoding_.max_share());
  FORETOKEN_ASSERT_OK(held);
  EXPECT_THAT(work_->Tokenize({.name = "me"}, "the", true,
                              absl::InfiniteFuture(), [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
}

TEST_F(TextWorkTest, ALongPromptIsEncodedLikeAShortOne) {
  Make();
  const auto encode = [&](const std::string& text) {
    GenerationRequest request;
    request.text = text;
    return work_->EncodePrompt(request, [] { return false; });
  };
  std::string text = "the an ";
  while (text.size() <= size_t{64} << 10) text += text;  // beyond kLongText
  const auto ids = encode(text);
  FORETOKEN_ASSERT_OK(ids);
  EXPECT_EQ(*ids, *work_->Tokenize({}, text, true, absl::InfiniteFuture()));
  FORETOKEN_EXPECT_OK(encode("the an"));
}

// A constraint that is known needs none of the threads, which are all busy.
TEST_F(TextWorkTest, ConstraintsAreCompiledOnTheThreadsForTexts) {
  Make();
  grammar::GrammarCache grammars({});
  GenerationRequest request;
  request.caller.name = "me";
  request.constraint = {Constraint::Kind::kRegex, "[ab]+", {}};
  const auto never = [] { return false; };
  const auto compiled = work_->CompileConstraint(request, grammars, never);
  ASSERT_THAT(compiled, IsOk());
  EXPECT_FALSE(compiled->kept);
  EXPECT_EQ(encoding_.used(), 0);
  absl::Notification go;
  std::atomic<int> begun{0};
  for (int i = 0; i < 3; ++i) {
    work_->Run({.name = "me"}, 8, absl::InfiniteFuture(),
               [&](const absl::Status&) {
                 ++begun;
                 go.WaitForNotification();
               });
  }
  ASSERT_TRUE(Eventually([&] { return begun == 3; }));
  const auto again = work_->CompileConstraint(request, grammars, never);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->grammar, compiled->grammar);
  EXPECT_TRUE(again->kept);
  request.constraint.source = "[cd]+";
  EXPECT_THAT(work_->CompileConstraint(request, grammars, [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  EXPECT_EQ(grammars.misses(), 1);
  go.Notify();
  work_.reset();  // its threads use `go`
}

TEST_F(TextWorkTest, AConstraintWaitsForTheMemoryOfItsCompilation) {
  Make();
  grammar::GrammarCache grammars({});
  const auto held = encoding_.Take("me", encoding_.max_share());
  ASSERT_THAT(held, IsOk());
  GenerationRequest request;
  request.caller.name = "me";
  request.constraint = {Constraint::Kind::kRegex, "[ab]+", {}};
  request.deadline = MonotonicNow() + absl::Milliseconds(50);
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      work_->CompileConstraint(request, grammars, [] { return false; })
          .status()));
  EXPECT_EQ(grammars.misses(), 0);
}

}  // namespace
}  // namespace foretoken::orchestrator
