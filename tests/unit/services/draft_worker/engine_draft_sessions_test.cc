#include "services/draft_worker/core/engine_draft_sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "common/infer/cpu/cpu_backend.h"
#include "tests/support/draft_caller.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using testing::DraftCaller;

std::unique_ptr<DraftEngine> FakeEngine(DraftEngineOptions options = {}) {
  return std::make_unique<DraftEngine>(
      options,
      std::make_unique<testing::FakeBackend>(testing::FakeBackendOptions()));
}

// A few rounds of a session; all drafts.
std::vector<Tokens> RunSession(DraftSessions& sessions, const DraftOpen& open) {
  auto session = DraftCaller::Open(sessions, open);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return {};
  std::vector<Tokens> drafts;
  int64_t length = static_cast<int64_t>(open.tokens.size());
  DraftAnswer answer;
  for (int round = 0; round < 8; ++round) {
    Tokens committed = {static_cast<TokenId>(round * 3 + 1)};
    if (answer.tree.size() > 0 && round % 3 != 1) {
      committed.insert(committed.begin(), answer.tree.tokens[0]);
    }
    length += static_cast<int64_t>(committed.size());
    const absl::Status asked =
        (*session)->Round(MakeRound(length, committed), answer);
    EXPECT_TRUE(asked.ok()) << asked;
    EXPECT_EQ(answer.length, length);
    drafts.push_back(answer.tree.tokens);
  }
  return drafts;
}

DraftOpen OpenOf(int i, int32_t vocab_size = 50) {
  Tokens prompt(1 + i * 5);
  for (size_t at = 0; at < prompt.size(); ++at) {
    prompt[at] = static_cast<TokenId>((i * 31 + at * 7) % vocab_size);
  }
  return MakeOpen(
      i % 2 == 0 ? "draft_model:gamma=5" : "ouroboros:window=5,beta=4", prompt,
      i % 3 == 0 ? SamplingParams() : Seeded(i));
}

void ExpectManyAreAsAlone(
    const std::function<std::unique_ptr<DraftEngine>()>& make_engine,
    int32_t vocab_size) {
  constexpr int kSessions = 8;
  std::vector<std::vector<Tokens>> alone;
  for (int i = 0; i < kSessions; ++i) {
    EngineDraftSessions drafts({}, make_engine(), nullptr);
    alone.push_back(RunSession(drafts, OpenOf(i, vocab_size)));
  }
  EngineDraftSessions drafts({}, make_engine(), nullptr);
  std::vector<std::future<std::vector<Tokens>>> together;
  for (int i = 0; i < kSessions; ++i) {
    together.push_back(std::async(std::launch::async, [&, i] {
      return RunSession(drafts, OpenOf(i, vocab_size));
    }));
  }
  for (int i = 0; i < kSessions; ++i) {
    EXPECT_EQ(together[i].get(), alone[i]) << "session " << i;
  }
}

TEST(EngineDraftSessionsTest, ConcurrentSessionsDraftAsEachAlone) {
  ExpectManyAreAsAlone([] { return FakeEngine(); }, 50);
}

TEST(EngineDraftSessionsTest, OnTheCpuBackendToo) {
  constexpr int32_t kVocab = 211;
  ExpectManyAreAsAlone(
      [] {
        CpuOptions cpu;
        cpu.threads = 2;
        auto backend = MakeCpuBackend(
            testing::TinyModelWeights(testing::TinyModelConfig(kVocab)), cpu);
        EXPECT_TRUE(backend.ok()) << backend.status();
        return std::make_unique<DraftEngine>(DraftEngineOptions(),
                                             *std::move(backend));
      },
      kVocab);
}

TEST(EngineDraftSessionsTest, AnEndedSessionIsFreed) {
  EngineDraftSessions drafts({}, FakeEngine(), nullptr);
  auto session = DraftCaller::Open(drafts, OpenOf(3));
  ASSERT_TRUE(session.ok());
  DraftAnswer answer;
  ASSERT_TRUE((*session)->Round(MakeRound(17, {4}), answer).ok());
  EXPECT_EQ(drafts.loop().snapshot().sessions, 1);
  session->reset();
  // The next call is behind the close.
  auto other = DraftCaller::Open(drafts, OpenOf(0));
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE((*other)->Round(MakeRound(2, {4}), answer).ok());
  EXPECT_EQ(drafts.loop().snapshot().sessions, 1);
  EXPECT_EQ(drafts.loop().snapshot().kv.sessions, 1);
}

TEST(EngineDraftSessionsTest, AStaleRoundEndsTheSession) {
  EngineDraftSessions drafts({}, FakeEngine(), nullptr);
  auto session = DraftCaller::Open(drafts, OpenOf(0));
  ASSERT_TRUE(session.ok());
  DraftAnswer answer;
  EXPECT_TRUE(
      absl::IsFailedPrecondition((*session)->Round(MakeRound(5, {4}), answer)));
  // It is gone, and says nothing more.
  (*session)->Ask(MakeRound(2, {4}));
  EXPECT_TRUE(absl::IsFailedPrecondition((*session)->Collect(answer)));
  // The next call is behind the end.
  auto other = DraftCaller::Open(drafts, OpenOf(0));
  ASSERT_TRUE((*other)->Round(MakeRound(2, {4}), answer).ok());
  EXPECT_EQ(drafts.loop().snapshot().sessions, 1);
}

TEST(EngineDraftSessionsTest, RefusalsReachTheCaller) {
  DraftEngineOptions options;
  options.max_sessions = 1;
  EngineDraftSessions drafts({}, FakeEngine(options), nullptr);
  const auto first = DraftCaller::Open(drafts, OpenOf(0));
  ASSERT_TRUE(first.ok());
  const auto refused = [&](const DraftOpen& open) {
    DraftAnswer answer;
    auto session = DraftCaller::Open(drafts, open);
    return session.ok() ? (*session)->Collect(answer) : session.status();
  };
  EXPECT_TRUE(absl::IsResourceExhausted(refused(OpenOf(1))));
  EXPECT_TRUE(absl::IsUnimplemented(refused(MakeOpen("prompt_lookup", {1}))));
}

TEST(EngineDraftSessionsTest, RoundsAskedAheadAreAnsweredInOrder) {
  EngineDraftSessions drafts({}, FakeEngine(), nullptr);
  auto session = DraftCaller::Open(drafts, OpenOf(0));
  ASSERT_TRUE(session.ok());
  for (int i = 0; i < 20; ++i) (*session)->Ask(MakeRound(2 + i, {4}));
  DraftAnswer answer;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE((*session)->Collect(answer).ok());
    EXPECT_EQ(answer.length, 2 + i);
  }
}

// Holds every pass until told.
class GatedBackend final : public Backend {
 public:
  explicit GatedBackend(std::shared_future<void> gate)
      : gate_(std::move(gate)), fake_(testing::FakeBackendOptions()) {}

  const ModelConfig& config() const override { return fake_.config(); }
  std::string numerics_fingerprint() const override { return "gated"; }
  absl::StatusOr<OpenedSession> Open(
      absl::string_view scope, absl::Span<const TokenId> prompt) override {
    return fake_.Open(scope, prompt);
  }
  absl::Status Close(SessionId session) override {
    return fake_.Close(session);
  }
  absl::StatusOr<int64_t> CommittedLength(SessionId session) const override {
    return fake_.CommittedLength(session);
  }
  absl::Status Reserve(SessionId session, int64_t length) override {
    return fake_.Reserve(session, length);
  }
  absl::Status Truncate(SessionId session, int64_t length) override {
    return fake_.Truncate(session, length);
  }
  absl::Status Forward(absl::Span<const PassSession> pass,
                       PassResult& result) override {
    if (!begun_.exchange(true)) started_.set_value();
    gate_.wait();
    return fake_.Forward(pass, result);
  }
  absl::Status Commit(SessionId session,
                      absl::Span<const int32_t> rows) override {
    return fake_.Commit(session, rows);
  }
  absl::StatusOr<absl::Span<const float>> Logits(SessionId session,
                                                 int32_t row) override {
    return fake_.Logits(session, row);
  }
  int32_t max_rows() const override { return fake_.max_rows(); }
  const KvCache& kv_cache() const override { return fake_.kv_cache(); }

  std::future<void> Started() { return started_.get_future(); }

 private:
  std::shared_future<void> gate_;
  std::promise<void> started_;
  std::atomic<bool> begun_{false};
  testing::FakeBackend fake_;
};

TEST(EngineDraftSessionsTest,
     ARoundThatIsClosedEndsWithinAPassAndFreesItsSession) {
  std::promise<void> gate;
  auto backend = std::make_unique<GatedBackend>(gate.get_future().share());
  std::future<void> started = backend->Started();
  EngineDraftSessions drafts(
      {.publish_first = true},
      std::make_unique<DraftEngine>(DraftEngineOptions(), std::move(backend)),
      nullptr);
  auto session =
      DraftCaller::Open(drafts, MakeOpen("draft_model:gamma=100", {1}));
  ASSERT_TRUE(session.ok());
  (*session)->Ask(MakeRound(2, {3}, 256));
  started.wait();
  (*session)->Close();
  gate.set_value();
  // The next call is behind the close.
  auto other = DraftCaller::Open(drafts, MakeOpen("draft_model:gamma=5", {1}));
  ASSERT_TRUE(other.ok());
  DraftAnswer answer;
  EXPECT_TRUE((*other)->Round(MakeRound(2, {3}), answer).ok());
  EXPECT_EQ(drafts.loop().snapshot().sessions, 1);
  // One for the closed round, one for each token of the other's chain.
  EXPECT_EQ(drafts.loop().snapshot().totals.passes,
            1 + static_cast<int64_t>(answer.tree.size()));
}

TEST(EngineDraftSessionsTest, StoppingFailsTheRoundsUnderWay) {
  std::promise<void> gate;
  auto backend = std::make_unique<GatedBackend>(gate.get_future().share());
  std::future<void> started = backend->Started();
  auto drafts = std::make_unique<EngineDraftSessions>(
      EngineLoopOptions(),
      std::make_unique<DraftEngine>(DraftEngineOptions(), std::move(backend)),
      nullptr);
  auto session =
      DraftCaller::Open(*drafts, MakeOpen("draft_model:gamma=100", {1}));
  ASSERT_TRUE(session.ok());
  (*session)->Ask(MakeRound(2, {3}, 256));
  started.wait();
  drafts->loop().Stop();
  gate.set_value();
  DraftAnswer answer;
  EXPECT_TRUE(absl::IsUnavailable((*session)->Collect(answer)));
  EXPECT_TRUE(
      absl::IsUnavailable(DraftCaller::Open(*drafts, OpenOf(0)).status()));
  session->reset();
}

}  // namespace
}  // namespace foretoken::draft_worker
