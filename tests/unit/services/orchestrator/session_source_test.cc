#include "services/orchestrator/core/session_source.h"

#include <atomic>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;

// A service whose session answers with the last committed token, and remembers
// what it was told.
class FakeSessions final : public DraftSessions {
 public:
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(DraftOpen open) override {
    if (hold != nullptr) hold->WaitForNotification();
    if (!refusal.ok()) return refusal;
    opened = std::move(open);
    ++live;
    return std::make_unique<Session>(*this);
  }

  absl::Notification* hold = nullptr;
  absl::Status refusal;
  absl::Status failure;  // of the next round
  DraftOpen opened;
  std::vector<int64_t> lengths;
  std::vector<TokenId> committed;
  std::atomic<int> live{0};

 private:
  class Session final : public DraftSession {
   public:
    explicit Session(FakeSessions& owner) : owner_(owner) {}
    ~Session() override { --owner_.live; }
    absl::Status Round(const DraftRound& round, DraftAnswer& answer) override {
      if (!owner_.failure.ok()) return owner_.failure;
      owner_.lengths.push_back(round.length);
      owner_.committed.insert(owner_.committed.end(), round.committed.begin(),
                              round.committed.end());
      answer.length = round.length;
      if (round.max_nodes == 0) return absl::OkStatus();
      answer.tree.tokens = {round.committed.back()};
      answer.tree.parents = {kRootParent};
      answer.tree.probs = {0.5f};
      answer.phrases = {{1, 2}};
      return absl::OkStatus();
    }

   private:
    FakeSessions& owner_;
  };
};

class SessionSourceTest : public ::testing::Test {
 protected:
  std::unique_ptr<SessionSource> Start() {
    const auto mode = Mode::Parse("ngram_trie:n=5");
    EXPECT_THAT(mode, testing::IsOk());
    auto source = std::make_unique<SessionSource>(
        DrafterId::kNgramTrie, *mode, "fingerprint",
        DraftServiceHere{&sessions_, &workers_,
                         [this](const DraftAnswer&) { ++answers_; },
                         [this](absl::StatusCode) { ++failures_; }},
        absl::Now);
    DraftOpen open;
    open.tokens = {7, 8};
    open.prompt_length = 2;
    source->Start(open);
    return source;
  }
  static DraftRound Round(int64_t length, int max_nodes) {
    DraftRound round;
    round.length = length;
    round.committed = {static_cast<TokenId>(length)};
    round.max_nodes = max_nodes;
    return round;
  }

  FakeSessions sessions_;
  WorkerPool workers_{2, 8};
  int answers_ = 0;
  int failures_ = 0;
  SourceDraft draft_;
};

TEST_F(SessionSourceTest, RoundsAreCallsOnASessionOfTheRequestsMode) {
  auto source = Start();
  source->Ask(Round(3, 8));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
  EXPECT_THAT(draft_.tree.tokens, ElementsAre(3));
  EXPECT_EQ(draft_.phrases.size(), 1u);
  EXPECT_EQ(sessions_.opened.mode.ToString(), "ngram_trie:n=5");
  EXPECT_EQ(sessions_.opened.tokenizer_fingerprint, "fingerprint");
  // Without a draft the session hears of the tokens all the same.
  source->Ask(Round(4, 0));
  EXPECT_EQ(source->Collect(absl::InfinitePast(), draft_),
            DraftOutcome::kNotAsked);
  EXPECT_TRUE(draft_.tree.tokens.empty());
  EXPECT_THAT(sessions_.lengths, ElementsAre(3, 4));
  EXPECT_EQ(answers_, 2);
}

TEST_F(SessionSourceTest, NobodyWaitsLongerForASessionThanForADraft) {
  absl::Notification open;
  sessions_.hold = &open;
  auto source = Start();
  source->Ask(Round(3, 8));
  EXPECT_EQ(source->Collect(absl::Now(), draft_), DraftOutcome::kLate);
  source->Ask(Round(4, 0));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kNotAsked);
  source->Ask(Round(5, 8));
  open.Notify();
  // Then it hears of all that was committed meanwhile.
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
  EXPECT_THAT(sessions_.committed, ElementsAre(3, 4, 5));
}

TEST_F(SessionSourceTest, ASessionThatNobodyWaitedForEndsByItself) {
  absl::Notification open;
  sessions_.hold = &open;
  {
    WorkerPool workers(1, 8);
    SessionSource source(DrafterId::kNgramTrie, Mode(), "",
                         DraftServiceHere{&sessions_, &workers, {}, {}},
                         absl::Now);
    source.Start(DraftOpen());
    source.Ask(Round(1, 8));
    open.Notify();
  }
  EXPECT_EQ(sessions_.live, 0);
}

TEST_F(SessionSourceTest, ASessionThatFoundNoRoomIsAskedForAgain) {
  sessions_.refusal = absl::ResourceExhaustedError("full");
  auto source = Start();
  source->Ask(Round(3, 8));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kRefused);
  EXPECT_EQ(failures_, 1);
  sessions_.refusal = absl::OkStatus();
  int64_t length = 4;
  DraftOutcome outcome = DraftOutcome::kRefused;
  while (outcome != DraftOutcome::kAnswered && length < 100) {
    source->Ask(Round(length++, 8));
    outcome = source->Collect(absl::InfiniteFuture(), draft_);
  }
  EXPECT_EQ(outcome, DraftOutcome::kAnswered);
  EXPECT_GT(length, 20);
  // It opened with all of the text, and heard of the rest.
  EXPECT_EQ(sessions_.opened.tokens.size() + sessions_.committed.size(),
            static_cast<size_t>(length - 1));
}

TEST_F(SessionSourceTest, ARequestThatDoesNotFitIsNotAskedForAgain) {
  sessions_.refusal = absl::UnimplementedError("no such mode");
  auto source = Start();
  for (int length = 3; length < 100; ++length) {
    source->Ask(Round(length, 8));
    EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
              DraftOutcome::kRefused);
  }
  EXPECT_EQ(failures_, 1);
}

TEST_F(SessionSourceTest, ASessionThatFailsIsLeft) {
  auto source = Start();
  source->Ask(Round(3, 8));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
  sessions_.failure = absl::InternalError("broken");
  source->Ask(Round(4, 8));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kBroken);
  source->Ask(Round(5, 8));
  EXPECT_EQ(source->Collect(absl::InfinitePast(), draft_),
            DraftOutcome::kRefused);
}

TEST_F(SessionSourceTest, AFullLineOfWorkersRefusesTheSession) {
  absl::Notification done;
  WorkerPool one(1, 0);
  ASSERT_THAT(one.Submit([&] { done.WaitForNotification(); }), testing::IsOk());
  SessionSource source(DrafterId::kNgramTrie, Mode(), "",
                       DraftServiceHere{&sessions_, &one, {}, {}}, absl::Now);
  source.Start(DraftOpen());
  source.Ask(Round(3, 8));
  EXPECT_EQ(source.Collect(absl::InfinitePast(), draft_),
            DraftOutcome::kRefused);
  done.Notify();
}

TEST_F(SessionSourceTest, NoSessionIsLeftBehind) {
  {
    WorkerPool workers(1, 8);
    SessionSource used(DrafterId::kNgramTrie, Mode(), "",
                       DraftServiceHere{&sessions_, &workers, {}, {}},
                       absl::Now);
    used.Start(DraftOpen());
    used.Ask(Round(1, 8));
    SessionSource unused(DrafterId::kNgramTrie, Mode(), "",
                         DraftServiceHere{&sessions_, &workers, {}, {}},
                         absl::Now);
    unused.Start(DraftOpen());
  }
  EXPECT_EQ(sessions_.live, 0);
}

}  // namespace
}  // namespace foretoken::orchestrator
