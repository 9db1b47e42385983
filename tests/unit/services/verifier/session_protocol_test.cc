// The order of messages is fuzzed (tests/fuzz); here, what single ones mean.
#include "services/verifier/adapters/session_protocol.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/convert.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

class FakeVerifier final : public VerifySessions {
 public:
  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest, std::shared_ptr<VerifyListener>) override {
    if (full) return absl::ResourceExhaustedError("full");
    ++opened;
    return std::make_unique<Session>(*this);
  }

  bool full = false;
  absl::Status refusal;  // of rounds
  int opened = 0;
  int rounds = 0;
  int closed = 0;

 private:
  class Session final : public VerifySession {
   public:
    explicit Session(FakeVerifier& verifier) : verifier_(verifier) {}
    ~Session() override { ++verifier_.closed; }
    absl::Status Ask(RoundRequest) override {
      if (!verifier_.refusal.ok()) return verifier_.refusal;
      ++verifier_.rounds;
      return absl::OkStatus();
    }

   private:
    FakeVerifier& verifier_;
  };
};

struct Fixture final : SessionProtocol::Output {
  explicit Fixture(
      SessionProtocol::Method method = SessionProtocol::Method::kVerify)
      : protocol(method, verifier, absl::Milliseconds(250), *this) {}
  void Send(v1::VerifyResponse message) override {
    sent.push_back(std::move(message));
  }
  void End(const absl::Status& status) override {
    ++ends;
    final_status = status;
  }
  void Say(const v1::VerifyRequest& message) {
    protocol.OnMessage(message, absl::InfiniteFuture(), nullptr);
  }
  // Opens a session whose prompt and first token are `length` tokens.
  void OpenAndPrefill(int64_t length) {
    Say(OpenMessage());
    protocol.OnOpened("ours");
    PrefillResult prefill;
    prefill.length = length;
    protocol.OnPrefilled(prefill);
  }
  static v1::VerifyRequest OpenMessage() {
    v1::VerifyRequest message;
    message.mutable_open()->add_token_ids(1);
    message.mutable_open()->set_prompt_length(1);
    message.mutable_open()->set_max_length(9);
    return message;
  }
  static v1::VerifyRequest RoundMessage(int64_t length) {
    v1::VerifyRequest message;
    message.mutable_round()->set_committed_length(length);
    return message;
  }

  FakeVerifier verifier;
  std::vector<v1::VerifyResponse> sent;
  int ends = 0;
  absl::Status final_status;
  SessionProtocol protocol;
};

// `change` spoils an open: it ends the stream before the engine hears of it.
void ExpectOpenRefused(const std::function<void(v1::OpenSession&)>& change,
                       absl::StatusCode code, const char* what) {
  Fixture fixture;
  v1::VerifyRequest message = Fixture::OpenMessage();
  change(*message.mutable_open());
  fixture.Say(message);
  EXPECT_EQ(fixture.ends, 1);
  EXPECT_THAT(fixture.final_status, StatusIs(code, HasSubstr(what)));
  EXPECT_LT(fixture.final_status.message().size(), 300u);
  EXPECT_EQ(fixture.verifier.opened, 0);
}

TEST(SessionProtocolTest, OpensThatCannotBeServedNeverReachTheEngine) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectOpenRefused(
      [](auto& open) { open.set_request_id("two\nlines of a log"); }, invalid,
      "request_id");
  ExpectOpenRefused(
      [](auto& open) { open.set_request_id(std::string(65, 'x')); }, invalid,
      "request_id");
  ExpectOpenRefused(
      [](auto& open) { open.set_cache_scope(std::string(257, 'x')); }, invalid,
      "cache_scope");
}

TEST(SessionProtocolTest, AFullEngineIsSaidWithAHintWhenToRetry) {
  Fixture fixture;
  fixture.verifier.full = true;
  fixture.Say(Fixture::OpenMessage());
  EXPECT_THAT(
      fixture.final_status,
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("full")));
  EXPECT_EQ(rpc::RetryAfter(fixture.final_status), absl::Milliseconds(250));
  EXPECT_EQ(fixture.verifier.closed, 0);
}

TEST(SessionProtocolTest, AHintThatTheVerifierGivesIsKept) {
  Fixture fixture;
  fixture.Say(Fixture::OpenMessage());
  fixture.protocol.OnFailed(rpc::WithRetryAfter(
      absl::ResourceExhaustedError("full"), absl::Seconds(7)));
  EXPECT_EQ(rpc::RetryAfter(fixture.final_status), absl::Seconds(7));
}

TEST(SessionProtocolTest, StaleAndRepeatedRoundsChangeNothing) {
  Fixture fixture;
  fixture.OpenAndPrefill(5);
  fixture.Say(Fixture::RoundMessage(5));
  fixture.Say(Fixture::RoundMessage(5));  // repeated
  fixture.Say(Fixture::RoundMessage(4));  // stale
  EXPECT_EQ(fixture.verifier.rounds, 1);
  EXPECT_EQ(fixture.ends, 0);
  RoundResult result;
  result.length = 6;
  fixture.protocol.OnRound(result);
  fixture.Say(Fixture::RoundMessage(5));  // stale by now
  EXPECT_EQ(fixture.verifier.rounds, 1);
  fixture.Say(Fixture::RoundMessage(6));
  EXPECT_EQ(fixture.verifier.rounds, 2);
  EXPECT_EQ(fixture.ends, 0);
}

TEST(SessionProtocolTest, ARoundAheadOfTheTextEndsTheSession) {
  for (const int64_t length : {int64_t{6}, int64_t{1} << 62}) {
    Fixture fixture;
    fixture.OpenAndPrefill(5);
    fixture.Say(Fixture::RoundMessage(length));
    EXPECT_THAT(fixture.final_status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("the session has 5")));
    EXPECT_EQ(fixture.verifier.closed, 1);
    // What the engine still had under way comes too late to be told.
    fixture.protocol.OnRound(RoundResult());
    EXPECT_EQ(fixture.sent.size(), 2u);
    EXPECT_EQ(fixture.ends, 1);
  }
}

TEST(SessionProtocolTest, ARoundThatTheVerifierRefusesEndsTheSession) {
  Fixture fixture;
  fixture.OpenAndPrefill(5);
  fixture.verifier.refusal = absl::InvalidArgumentError("tree: 5 draft nodes");
  fixture.Say(Fixture::RoundMessage(5));
  EXPECT_THAT(fixture.final_status, StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("5 draft nodes")));
  EXPECT_EQ(fixture.verifier.rounds, 0);
  EXPECT_EQ(fixture.verifier.closed, 1);
}

TEST(SessionProtocolTest, AHalfCloseWaitsForWhatIsUnderWay) {
  Fixture fixture;
  fixture.OpenAndPrefill(5);
  fixture.Say(Fixture::RoundMessage(5));
  fixture.protocol.OnHalfClose();
  EXPECT_EQ(fixture.ends, 0);
  RoundResult result;
  result.length = 6;
  fixture.protocol.OnRound(result);
  EXPECT_EQ(fixture.sent.size(), 3u);
  EXPECT_EQ(fixture.ends, 1);
  FORETOKEN_EXPECT_OK(fixture.final_status);
  EXPECT_EQ(fixture.verifier.closed, 1);
}

// Its constraint may take a while to compile, its prompt to be read.
TEST(SessionProtocolTest, AHalfCloseWaitsForAnOpening) {
  Fixture fixture;
  fixture.Say(Fixture::OpenMessage());
  fixture.protocol.OnHalfClose();
  fixture.protocol.OnOpened("ours");
  EXPECT_EQ(fixture.ends, 0);
  EXPECT_EQ(fixture.verifier.closed, 0);
  PrefillResult prefill;
  prefill.length = 5;
  fixture.protocol.OnPrefilled(prefill);
  EXPECT_EQ(fixture.sent.size(), 2u);
  EXPECT_EQ(fixture.ends, 1);
  FORETOKEN_EXPECT_OK(fixture.final_status);
  EXPECT_EQ(fixture.verifier.closed, 1);
}

TEST(SessionProtocolTest, AnOpeningMayFailLater) {
  for (const bool half_closed : {false, true}) {
    Fixture fixture;
    fixture.Say(Fixture::OpenMessage());
    if (half_closed) fixture.protocol.OnHalfClose();
    fixture.protocol.OnFailed(absl::InvalidArgumentError("constraint: no"));
    EXPECT_EQ(fixture.ends, 1);
    EXPECT_THAT(fixture.final_status,
                StatusIs(absl::StatusCode::kInvalidArgument, "constraint: no"));
    EXPECT_EQ(fixture.verifier.closed, 1);
    EXPECT_TRUE(fixture.sent.empty());
  }
}

TEST(SessionProtocolTest, ARoundBeforeTheSessionIsOpenEndsIt) {
  Fixture fixture;
  fixture.Say(Fixture::OpenMessage());
  fixture.Say(Fixture::RoundMessage(1));
  EXPECT_THAT(fixture.final_status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not open yet")));
  EXPECT_EQ(fixture.verifier.rounds, 0);
  EXPECT_EQ(fixture.verifier.closed, 1);
  // The opening comes too late to be told.
  fixture.protocol.OnOpened("ours");
  fixture.protocol.OnFailed(absl::InvalidArgumentError("constraint: no"));
  EXPECT_TRUE(fixture.sent.empty());
  EXPECT_EQ(fixture.ends, 1);
}

TEST(SessionProtocolTest, EmbeddingsHaveAMethodOfTheirOwn) {
  Fixture verify;
  v1::VerifyRequest pooled = Fixture::OpenMessage();
  pooled.mutable_open()->set_pooling(v1::POOLING_MEAN);
  verify.Say(pooled);
  EXPECT_THAT(verify.final_status, StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("pooling")));
  Fixture plain(SessionProtocol::Method::kEmbed);
  plain.Say(Fixture::OpenMessage());
  EXPECT_THAT(plain.final_status, StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("pooling")));
  EXPECT_EQ(verify.verifier.opened + plain.verifier.opened, 0);
}

TEST(SessionProtocolTest, AConstraintOfAnEmbeddingIsNotCompiled) {
  Fixture fixture(SessionProtocol::Method::kEmbed);
  v1::VerifyRequest pooled = Fixture::OpenMessage();
  v1::OpenSession& open = *pooled.mutable_open();
  open.set_pooling(v1::POOLING_MEAN);
  rpc::ToProto(Constraint{Constraint::Kind::kRegex, "a*", {}},
               open.mutable_constraint());
  open.set_grammar_version(kGrammarVersion);
  fixture.Say(pooled);
  EXPECT_THAT(fixture.final_status, StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("constraint")));
  EXPECT_EQ(fixture.verifier.opened, 0);
}

TEST(SessionProtocolTest, AnEmbeddingEndsItsStream) {
  Fixture fixture(SessionProtocol::Method::kEmbed);
  v1::VerifyRequest pooled = Fixture::OpenMessage();
  pooled.mutable_open()->set_pooling(v1::POOLING_LAST);
  fixture.Say(pooled);
  fixture.protocol.OnOpened("ours");
  PrefillResult result;
  result.length = 1;
  result.finish = FinishReason::kStop;
  result.embedding = {0.6f, -0.8f};
  fixture.protocol.OnPrefilled(result);
  ASSERT_EQ(fixture.sent.size(), 2u);
  const auto read = rpc::FromProto(fixture.sent[1].prefilled());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->embedding, result.embedding);
  EXPECT_EQ(fixture.ends, 1);
  EXPECT_TRUE(fixture.final_status.ok());
  EXPECT_EQ(fixture.verifier.closed, 1);
}

}  // namespace
}  // namespace foretoken::verifier
