#include "services/orchestrator/core/verifiers/verifier_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/orchestrator/core/verifiers/remote_verifier.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

// A verifier that says of itself what a test wants.
class FakeVerifier final : public VerifierPeer {
 public:
  // A session that is opened, if `opens`, and whose rounds are never answered;
  // or the verifier dies of it.
  class Session final : public VerifySession {
   public:
    explicit Session(FakeVerifier& owner) : owner_(owner) {
      ++owner_.sessions_open;
    }
    ~Session() override { --owner_.sessions_open; }
    absl::Status Ask(RoundRequest) override {
      return owner_.down ? absl::UnavailableError("gone") : absl::OkStatus();
    }

   private:
    FakeVerifier& owner_;
  };
  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request,
      std::shared_ptr<VerifyListener> listener) override {
    ++(request.request_id == "trial" ? trials : opened);
    if (!request.constraint.empty()) constraint = request.constraint;
    if (request.pooling != Pooling::kNone && !embeds) {
      return absl::UnimplementedError("no such method");
    }
    if (down) return absl::UnavailableError("down");
    const std::string own = absl::StrCat("numerics-", numerics.load());
    if (!request.numerics_fingerprint.empty() &&
        request.numerics_fingerprint != own) {
      return absl::AbortedError("another model");
    }
    if (late) {
      listener->OnFailed(
          absl::DeadlineExceededError("the deadline has passed"));
      return std::make_unique<Session>(*this);
    }
    if (opens) listener->OnOpened(own);
    if (prefills) {
      PrefillResult result;
      result.length = static_cast<int64_t>(request.tokens.size());
      listener->OnPrefilled(std::move(result));
    }
    if (dies) {
      down = stays_down.load();
      listener->OnFailed(absl::UnavailableError("Socket closed"));
    }
    return std::make_unique<Session>(*this);
  }
  void GetInfo(absl::Time, OnInfo done) override {
    ++probes;
    if (miss > 0) {
      --miss;
      return done(absl::UnavailableError("busy"));
    }
    if (down) return done(absl::UnavailableError("down"));
    if (waits.exchange(false)) {
      unanswered = std::move(done);
      waiting = true;
      return;
    }
    if (hangs) return done(absl::DeadlineExceededError("no answer"));
    if (faulty) return done(absl::FailedPreconditionError("bad weights"));
    VerifierInfo info;
    info.numerics_fingerprint = absl::StrCat("numerics-", numerics.load());
    info.vocab_size = vocab_size;
    info.max_positions = 100;
    info.sessions = sessions;
    info.max_rows_per_session = max_rows;
    info.pass_costs = {{1, pass_ms}};
    if (passes >= 0) info.passes = passes;
    info.grammar_version = grammar_version;
    info.embedding_size = embedding_size;
    info.model_pooling = model_pooling;
    done(info);
  }

  std::atomic<bool> down{false};
  std::atomic<bool> hangs{false};
  std::atomic<bool> faulty{false};
  std::atomic<bool> opens{true};
  std::atomic<bool> prefills{false};
  std::atomic<bool> dies{false};
  std::atomic<bool> stays_down{false};  // once it has died
  std::atomic<bool> embeds{true};
  std::atomic<int> embedding_size{0};
  std::atomic<Pooling> model_pooling{Pooling::kMean};
  std::atomic<bool> late{false};  // sees every deadline pass at once
  std::atomic<int> opened{0};     // by requests
  std::atomic<int> trials{0};     // by the pool
  std::atomic<int> sessions_open{0};
  std::atomic<int> miss{0};  // probes that it will not answer
  std::atomic<int> numerics{1};
  std::atomic<int> vocab_size{50};
  std::atomic<int> sessions{0};
  std::atomic<int> pass_ms{1};
  std::atomic<int> max_rows{320};
  std::atomic<int> probes{0};
  std::atomic<int> passes{-1};  // negative: it does not tell
  std::atomic<int> grammar_version{kGrammarVersion};
  Constraint constraint;  // of the last session that had one
  // The next probe is left for the test to answer, once it is `waiting`.
  std::atomic<bool> waits{false};
  std::atomic<bool> waiting{false};
  OnInfo unanswered;
};

class VerifierPoolTest : public ::testing::Test {
 protected:
  // All verifiers are called "fake", or "fake-0", ...
  VerifierPool& Start(absl::Duration probe_interval = absl::Hours(1),
                      bool numbered = false) {
    std::vector<VerifierEndpoint> endpoints;
    for (FakeVerifier& verifier : verifiers_) {
      const std::string name =
          numbered ? absl::StrCat("fake-", endpoints.size()) : "fake";
      // (The fixture's.)
      endpoints.push_back({name, std::shared_ptr<VerifierPeer>(
                                     std::shared_ptr<void>(), &verifier)});
    }
    VerifierPoolOptions options;
    options.probe_interval = probe_interval;
    options.probe_timeout = absl::Seconds(30);
    pool_ = std::make_unique<VerifierPool>(
        options, std::move(endpoints),
        [this] { return absl::UnixEpoch() + absl::Seconds(seconds_.load()); });
    return *pool_;
  }
  // A second of silence, of which the pool learns.
  void PassSecond() {
    ++seconds_;
    // The second one begins when the first has been recorded.
    const int probes = verifiers_[0].probes + 2;
    ASSERT_TRUE(Eventually([&] { return verifiers_[0].probes >= probes; }));
  }

  std::atomic<int> seconds_{0};
  FakeVerifier verifiers_[3];
  FakeVerifier more_;
  std::unique_ptr<VerifierPool> pool_;
};

TEST_F(VerifierPoolTest, ItsEndDoesNotWaitForAVerifierThatHangs) {
  Start(absl::Milliseconds(1));
  verifiers_[1].waits = true;
  ASSERT_TRUE(Eventually([&] { return verifiers_[1].waiting.load(); }));
  pool_.reset();
  verifiers_[1].unanswered(absl::DeadlineExceededError("no answer"));
}

TEST_F(VerifierPoolTest, TheLeastLoadedIsAskedFirst) {
  verifiers_[0].sessions = 5;
  verifiers_[1].sessions = 2;
  verifiers_[2].sessions = 3;
  VerifierPool& pool = Start();
  // Sessions of others count, and so do our own leases.
  auto a = pool.Acquire({});
  EXPECT_EQ(a->id(), 1);  // 5 3 3
  auto b = pool.Acquire({});
  EXPECT_EQ(b->id(), 1);  // 5 4 3: ties go to the first
  auto c = pool.Acquire({});
  EXPECT_EQ(c->id(), 2);
  a.reset();
  b.reset();
  EXPECT_EQ(pool.Acquire({})->id(), 1);
  EXPECT_EQ(pool.Acquire({1})->id(), 2);
  EXPECT_EQ(pool.Acquire({1, 2})->id(), 0);
  EXPECT_FALSE(pool.Acquire({0, 1, 2}).has_value());
}

TEST_F(VerifierPoolTest, ARequestGoesWhereItsPrefixWasServedLast) {
  VerifierPool& pool = Start();
  const std::vector<TokenId> text(100, 7);
  std::vector<TokenId> other(100, 8);
  const PrefixKeys mine = KeysOfPrefixes("scope", text);
  const PrefixKeys its = KeysOfPrefixes("another scope", other);
  EXPECT_EQ(pool.Acquire({1, 2}, its)->id(), 0);
  EXPECT_EQ(pool.Acquire({0, 1}, mine)->id(), 2);
  EXPECT_EQ(pool.Acquire({}, mine)->id(), 2);
  EXPECT_EQ(pool.Acquire({}, its)->id(), 0);
  // A longer text, and one that only shares the scope and is short.
  EXPECT_EQ(
      pool.Acquire({}, KeysOfPrefixes("scope", std::vector<TokenId>(900, 7)))
          ->id(),
      2);
  EXPECT_EQ(pool.Acquire({}, KeysOfPrefixes("scope", {8, 8}))->id(), 2);
  // Not if it must not be, or is down.
  EXPECT_EQ(pool.Acquire({2}, mine)->id(), 0);
  EXPECT_EQ(pool.Acquire({0, 1}, mine)->id(), 2);
  pool.Acquire({0, 1})->ReportDown();
  EXPECT_EQ(pool.Acquire({}, mine)->id(), 0);
}

TEST_F(VerifierPoolTest, APrefixIsServedElsewhereIfItsVerifierHasMoreToDo) {
  // The longer the prefix, the more its verifier may have beyond the others.
  struct Case {
    int tokens;
    int excess;  // prefix_slack at most, and the request itself
  };
  for (const Case& each : {Case{0, 1}, Case{32, 2}, Case{64, 3}, Case{128, 4},
                           Case{256, 5}, Case{4096, 5}}) {
    VerifierPool& pool = Start();
    const std::vector<TokenId> text(each.tokens, 7);
    const PrefixKeys keys = KeysOfPrefixes("scope", text);
    std::vector<VerifierPool::Lease> leases;
    leases.reserve(12);
    int counts[3] = {};
    int most = 0;
    for (int i = 0; i < 12; ++i) {
      leases.push_back(*pool.Acquire({}, keys));
      ++counts[leases.back().id()];
      most = std::max(most, *std::max_element(counts, counts + 3) -
                                *std::min_element(counts, counts + 3));
    }
    EXPECT_EQ(most, each.excess) << each.tokens << " tokens";
    EXPECT_GT(*std::min_element(counts, counts + 3), 0);
  }
}

TEST_F(VerifierPoolTest, UnrelatedTextsOfAScopeSpread) {
  VerifierPool& pool = Start(absl::Hours(1), /*numbered=*/true);
  std::vector<VerifierPool::Lease> leases;
  leases.reserve(30);
  int counts[3] = {};
  for (int i = 0; i < 30; ++i) {
    const std::vector<TokenId> text(100, i);
    leases.push_back(*pool.Acquire({}, KeysOfPrefixes("scope", text)));
    ++counts[leases.back().id()];
    EXPECT_LE(*std::max_element(counts, counts + 3),
              *std::min_element(counts, counts + 3) + 2);
  }
}

TEST_F(VerifierPoolTest, OrchestratorsAgreeWhereATextBeginsIfNoneHasSeenIt) {
  std::vector<int> first;
  for (int orchestrator = 0; orchestrator < 2; ++orchestrator) {
    VerifierPool& pool = Start(absl::Hours(1), /*numbered=*/true);
    // What an orchestrator knows of the scope does not matter.
    if (orchestrator == 1) pool.Acquire({0, 1}, KeysOfPrefixes("scope", {1}));
    std::vector<int> ids;
    for (int i = 0; i < 30; ++i) {
      const std::vector<TokenId> text(100, i);
      ids.push_back(pool.Acquire({}, KeysOfPrefixes("scope", text))->id());
    }
    EXPECT_EQ(std::set<int>(ids.begin(), ids.end()).size(), 3u);
    if (orchestrator == 0) first = ids;
    EXPECT_EQ(ids, first);
  }
}

TEST_F(VerifierPoolTest, MembersComeAndGo) {
  VerifierPool& pool = Start(absl::Milliseconds(2));
  const auto set = [&](const std::vector<std::string>& names) {
    pool.SetMembers(
        names, [&](size_t i) -> absl::StatusOr<std::shared_ptr<VerifierPeer>> {
          if (names[i] == "bad") return absl::InvalidArgumentError("no TLS");
          return std::shared_ptr<VerifierPeer>(std::shared_ptr<void>(), &more_);
        });
  };
  // The fixture's are all called "fake".
  auto held = pool.Acquire({0, 1});
  ASSERT_EQ(held->id(), 2);
  set({"fake", "new", "bad"});
  EXPECT_TRUE(Eventually([&] { return pool.size() == 3; }));
  EXPECT_TRUE(Eventually([&] { return more_.probes > 1; }));
  EXPECT_EQ(pool.Acquire({0, 2})->id(), 3);
  EXPECT_EQ(pool.Acquire({0, 3})->id(), 2) << "leaving, and better than none";
  EXPECT_NE(pool.Acquire({})->id(), 2);
  EXPECT_FALSE(pool.AllIn({0, 3}));
  EXPECT_TRUE(pool.AllIn({0, 2, 3}));
  // Dropped once its last lease has ended.
  const int probes = more_.probes;
  EXPECT_TRUE(Eventually([&] { return more_.probes > probes + 3; }));
  EXPECT_EQ(pool.size(), 3u);
  held.reset();
  EXPECT_TRUE(Eventually([&] { return pool.size() == 2; }));
  EXPECT_TRUE(pool.AllIn({0, 3}));
  // All may go: the pool waits for others.
  set({});
  EXPECT_TRUE(Eventually([&] { return pool.size() == 0; }));
  EXPECT_TRUE(Eventually([&] { return !pool.any_up(); }));
  EXPECT_FALSE(pool.Acquire({}).has_value());
  EXPECT_FALSE(pool.AllIn({}));
  set({"new"});
  EXPECT_TRUE(Eventually([&] { return pool.any_up(); }));
}

TEST_F(VerifierPoolTest, OneThatWasFoundDownIsAskedLast) {
  verifiers_[0].sessions = 90;
  verifiers_[2].sessions = 10;
  VerifierPool& pool = Start();
  auto lease = pool.Acquire({});
  ASSERT_EQ(lease->id(), 1);
  lease->ReportDown();
  lease.reset();
  EXPECT_EQ(pool.Acquire({})->id(), 2);
  // Still better than nothing: it may have come back.
  EXPECT_EQ(pool.Acquire({0, 2})->id(), 1);
}

TEST_F(VerifierPoolTest, WhatPassesCostIsAsOfTheLastProbe) {
  VerifierPool& pool = Start(absl::Milliseconds(5));
  EXPECT_EQ(pool.Info()->pass_costs[0].second, 1);
  for (FakeVerifier& verifier : verifiers_) verifier.pass_ms = 7;
  EXPECT_TRUE(
      Eventually([&] { return pool.Info()->pass_costs[0].second == 7; }));
}

TEST_F(VerifierPoolTest, LimitsAreTheLeastOfThoseThatAreUp) {
  verifiers_[1].max_rows = 128;
  VerifierPool& pool = Start(absl::Milliseconds(5));
  EXPECT_EQ(pool.Info()->max_rows_per_session, 128);
  verifiers_[1].down = true;
  EXPECT_TRUE(
      Eventually([&] { return pool.Info()->max_rows_per_session == 320; }));
}

TEST_F(VerifierPoolTest, AProbeFindsOutWhoIsBack) {
  verifiers_[1].down = true;
  verifiers_[0].sessions = 9;
  verifiers_[2].sessions = 9;
  VerifierPool& pool = Start(absl::Milliseconds(5));
  EXPECT_NE(pool.Acquire({})->id(), 1);
  verifiers_[1].down = false;
  EXPECT_TRUE(Eventually([&] { return pool.Acquire({})->id() == 1; }));
}

TEST_F(VerifierPoolTest, AnotherModelIsHeldInReserve) {
  verifiers_[0].sessions = 9;
  verifiers_[1].vocab_size = 51;
  VerifierPool& pool = Start();
  EXPECT_EQ(pool.Acquire({})->id(), 2);
  EXPECT_EQ(pool.Acquire({2})->id(), 0);
  // Asked last: it may run the active model by now.
  EXPECT_EQ(pool.Acquire({0, 2})->id(), 1);
}

TEST_F(VerifierPoolTest, OtherWeightsAreAnotherModelAndMostDecide) {
  verifiers_[0].numerics = 2;
  VerifierPool& pool = Start();
  EXPECT_EQ(pool.Info()->numerics_fingerprint, "numerics-1");
  EXPECT_NE(pool.Acquire({})->id(), 0);
}

TEST_F(VerifierPoolTest, AModelStaysActiveHoweverManyRunAnother) {
  verifiers_[2].sessions = 9;
  VerifierPool& pool = Start(absl::Milliseconds(2));
  verifiers_[0].numerics = 2;
  verifiers_[1].numerics = 2;
  const int probes = verifiers_[2].probes;
  ASSERT_TRUE(Eventually([&] { return verifiers_[2].probes >= probes + 9; }));
  EXPECT_EQ(pool.Info()->numerics_fingerprint, "numerics-1");
  EXPECT_EQ(pool.Acquire({})->id(), 2);
  // The last of the old model goes.
  verifiers_[2].down = true;
  EXPECT_TRUE(Eventually(
      [&] { return pool.Info()->numerics_fingerprint == "numerics-2"; }));
  EXPECT_TRUE(Eventually([&] { return pool.any_up(); }));
  EXPECT_NE(pool.Acquire({})->id(), 2);
}

TEST_F(VerifierPoolTest, AMissedProbeElectsNobody) {
  verifiers_[1].numerics = 2;
  verifiers_[2].down = true;
  VerifierPool& pool = Start(absl::Milliseconds(2));
  EXPECT_EQ(pool.Info()->numerics_fingerprint, "numerics-1");
  // Down for less than probes_before_election, again and again.
  for (int i = 0; i < 5; ++i) {
    verifiers_[0].miss = 2;
    ASSERT_TRUE(Eventually([&] { return verifiers_[0].miss == 0; }));
    // Two, because a probe is counted before it is missed.
    const int probes = verifiers_[0].probes;
    ASSERT_TRUE(Eventually([&] { return verifiers_[0].probes > probes + 1; }));
    EXPECT_EQ(pool.Info()->numerics_fingerprint, "numerics-1");
  }
}

// Counts failures.
struct Failures final : VerifyListener {
  void OnOpened(const std::string&) override {}
  void OnPrefilled(PrefillResult) override {}
  void OnRound(RoundResult) override {}
  void OnFailed(absl::Status status) override {
    EXPECT_TRUE(absl::IsUnavailable(status));
    ++count;
  }
  std::atomic<int> count{0};
};

TEST_F(VerifierPoolTest, SessionsLeaveAVerifierThatHangsAndNoOther) {
  VerifierPool& pool = Start(absl::Milliseconds(2));
  std::vector<VerifierPool::Lease> leases;
  leases.reserve(3);
  std::shared_ptr<Failures> sessions[3];
  for (int i = 0; i < 3; ++i) {
    std::set<int> others = {0, 1, 2};
    others.erase(i);
    leases.push_back(*pool.Acquire(others));
    sessions[i] = std::make_shared<Failures>();
    leases[i].WatchSession(sessions[i]);
  }
  const auto ended = std::make_shared<Failures>();
  {
    auto lease = pool.Acquire({1, 2});
    lease->WatchSession(ended);
  }
  verifiers_[0].hangs = true;
  verifiers_[1].down = true;  // or drains: it refuses, and serves its sessions
  EXPECT_TRUE(Eventually([&] { return sessions[0]->count == 1; }));
  const int probes = verifiers_[1].probes;
  EXPECT_TRUE(Eventually([&] { return verifiers_[1].probes > probes + 3; }));
  EXPECT_EQ(sessions[0]->count, 1);
  EXPECT_EQ(sessions[1]->count, 0);
  EXPECT_EQ(sessions[2]->count, 0);
  EXPECT_EQ(ended->count, 0);
}

TEST_F(VerifierPoolTest, OneThatLeavesASessionIsAvoidedUntilAPassEnds) {
  verifiers_[0].passes = 3;
  VerifierPool& pool = Start(absl::Milliseconds(1));
  auto lease = pool.Acquire({1, 2});
  const auto waits = std::make_shared<Failures>();
  lease->WatchSession(waits);
  lease->BeginWait();
  auto other = pool.Acquire({1, 2});
  const auto idle = std::make_shared<Failures>();
  other->WatchSession(idle);
  for (int i = 0; i < 4; ++i) PassSecond();
  EXPECT_EQ(waits->count, 0);
  for (int i = 0; i < 2; ++i) PassSecond();
  EXPECT_EQ(waits->count, 1);
  EXPECT_EQ(idle->count, 0);
  EXPECT_FALSE(pool.Acquire({1, 2}).has_value());
  EXPECT_NE(pool.Acquire({})->id(), 0);
  for (int i = 1; i < 3; ++i) verifiers_[i].down = true;
  EXPECT_TRUE(Eventually([&] { return !pool.any_up(); }));
  // The pool itself tries it, ever more rarely: after 5 seconds and 10 more. No
  // request is lost to it.
  EXPECT_EQ(verifiers_[0].trials, 0);
  for (const int seconds : {5, 10}) {
    const int before = verifiers_[0].trials;
    for (int i = 0; i < seconds; ++i) {
      EXPECT_EQ(verifiers_[0].trials, before);
      EXPECT_EQ(verifiers_[0].sessions_open, before > 0);
      EXPECT_FALSE(pool.Acquire({1, 2}).has_value());
      PassSecond();
    }
    EXPECT_EQ(verifiers_[0].trials, before + 1);
  }
  EXPECT_EQ(verifiers_[0].sessions_open, 1);
  EXPECT_FALSE(pool.any_up());
  ++verifiers_[0].passes;
  PassSecond();
  EXPECT_TRUE(pool.any_up());
  EXPECT_EQ(verifiers_[0].sessions_open, 0);
  EXPECT_TRUE(pool.Acquire({1, 2}).has_value());
}

TEST_F(VerifierPoolTest, ALongQueueIsWaitedFor) {
  for (int passes : {0, -1}) {  // the second does not tell them
    verifiers_[0].passes = passes;
    VerifierPool& pool = Start(absl::Milliseconds(1));
    auto lease = pool.Acquire({1, 2});
    const auto waits = std::make_shared<Failures>();
    lease->WatchSession(waits);
    lease->BeginWait();
    for (int i = 0; i < 12; ++i) {
      PassSecond();
      if (passes >= 0 && i % 4 == 0) ++verifiers_[0].passes;
    }
    EXPECT_EQ(waits->count, 0);
    EXPECT_TRUE(pool.Acquire({1, 2}).has_value());
  }
}

TEST_F(VerifierPoolTest, WithNoOtherVerifierASessionThatIsLeftIsUnavailable) {
  verifiers_[0].passes = 3;
  for (int i = 1; i < 3; ++i) verifiers_[i].down = true;
  VerifierPool& pool = Start(absl::Milliseconds(1));
  RemoteVerifierOptions options;
  options.connect_timeout = absl::Milliseconds(50);
  options.failover_timeout = absl::Milliseconds(50);
  for (const bool prefills : {false, true}) {
    verifiers_[0].prefills = prefills;
    ++verifiers_[0].passes;
    PassSecond();
    std::atomic<bool> done{false};
    absl::Status status;
    std::thread request([&] {
      RemoteVerifier remote(options, pool);
      const std::vector<TokenId> text = {1};
      status = remote.Open(SessionRequest(), text).status();
      if (prefills) {
        FORETOKEN_EXPECT_OK(status);
        RoundRequest round;
        round.length = 1;
        status = remote.Round(std::move(round), text).status();
      }
      done = true;
    });
    while (!done) PassSecond();
    request.join();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, _));
  }
}

TEST_F(VerifierPoolTest, ASessionThatIsLeftGoesOnElsewhere) {
  verifiers_[0].passes = 3;
  verifiers_[1].prefills = true;
  for (int i = 1; i < 3; ++i) verifiers_[i].sessions = 10 * i;
  VerifierPool& pool = Start(absl::Milliseconds(1));
  std::atomic<bool> done{false};
  std::thread request([&] {
    RemoteVerifier remote({}, pool);
    SessionRequest session;
    session.numerics_fingerprint = "numerics-1";
    const std::vector<TokenId> text = {1};
    FORETOKEN_EXPECT_OK(remote.Open(std::move(session), text).status());
    done = true;
  });
  while (!done) PassSecond();
  request.join();
  EXPECT_EQ(verifiers_[0].opened, 1);
  EXPECT_EQ(verifiers_[1].opened, 1);
}

TEST_F(VerifierPoolTest, ANewRequestLearnsThatItsModelWasReplaced) {
  for (int i = 1; i < 3; ++i) verifiers_[i].numerics = 2;
  VerifierPool& pool = Start(absl::Milliseconds(2));
  verifiers_[0].down = true;
  RemoteVerifierOptions options;
  options.connect_timeout = absl::Minutes(2);
  RemoteVerifier remote(options, pool);
  SessionRequest session;
  session.numerics_fingerprint = "numerics-1";
  const std::vector<TokenId> text = {1};
  EXPECT_TRUE(IsModelReplaced(remote.Open(std::move(session), text).status()));
  EXPECT_EQ(pool.Info()->numerics_fingerprint, "numerics-2");
}

TEST_F(VerifierPoolTest, AVerifierThatOpensNoSessionIsLeftForAnother) {
  VerifierPool& pool = Start();
  verifiers_[0].opens = false;
  for (int i = 1; i < 3; ++i) verifiers_[i].sessions = 10;
  RemoteVerifierOptions options;
  options.connect_timeout = absl::Milliseconds(50);
  RemoteVerifier remote(options, pool);
  SessionRequest request;
  request.deadline = MonotonicNow() + absl::Seconds(2);
  const std::vector<TokenId> text = {1};
  EXPECT_FALSE(remote.Open(std::move(request), text).ok());
  EXPECT_GE(verifiers_[0].opened, 1);
  EXPECT_GE(verifiers_[1].opened + verifiers_[2].opened, 1);
}

TEST_F(VerifierPoolTest, ARequestThatKilledTwoVerifiersIsNotTriedOnAThird) {
  for (FakeVerifier& verifier : verifiers_) verifier.dies = true;
  VerifierPool& pool = Start();
  RemoteVerifier remote({}, pool);
  const std::vector<TokenId> text = {1};
  EXPECT_THAT(remote.Open(SessionRequest(), text).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("two verifiers")));
  EXPECT_EQ(verifiers_[0].opened + verifiers_[1].opened + verifiers_[2].opened,
            2);
}

// The others are down when it is lost, and stay so for longer than a request
// waits for its first verifier.
TEST_F(VerifierPoolTest, ASessionThatIsLostInItsPrefillHasTheTimeOfAFailover) {
  verifiers_[0].dies = verifiers_[0].stays_down = true;
  for (int i = 1; i < 3; ++i) {
    verifiers_[i].down = true;
    verifiers_[i].sessions = 10;
  }
  VerifierPool& pool = Start();
  RemoteVerifierOptions options;
  std::atomic<int> seconds{0};
  RemoteVerifier remote(options, pool, [&seconds] {
    return absl::UnixEpoch() + absl::Seconds(seconds.load());
  });
  absl::Status status;
  std::thread request([&] {
    const std::vector<TokenId> text = {1};
    status = remote.Open(SessionRequest(), text).status();
  });
  // Asked after the loss, and twice more after the time has passed.
  EXPECT_TRUE(Eventually([&] { return verifiers_[1].opened > 0; }));
  seconds = static_cast<int>(absl::ToInt64Seconds(options.connect_timeout)) + 1;
  const int opened = verifiers_[1].opened;
  EXPECT_TRUE(Eventually([&] { return verifiers_[1].opened >= opened + 2; }));
  verifiers_[1].prefills = true;
  verifiers_[1].down = false;
  request.join();
  FORETOKEN_EXPECT_OK(status);
  EXPECT_EQ(verifiers_[0].sessions_open, 0);
  EXPECT_EQ(remote.failovers(), 1);
}

TEST_F(VerifierPoolTest, AnEmbeddingGoesToAVerifierThatMakesSome) {
  verifiers_[0].embeds = false;  // and does not say so
  for (FakeVerifier& verifier : verifiers_) verifier.embedding_size = 8;
  for (int i = 1; i < 3; ++i) verifiers_[i].sessions = 10 * i;
  verifiers_[1].prefills = true;
  VerifierPool& pool = Start();
  RemoteVerifier remote({}, pool);
  SessionRequest session;
  session.pooling = Pooling::kMean;
  const std::vector<TokenId> text = {1};
  FORETOKEN_EXPECT_OK(remote.Open(session, text).status());
  EXPECT_EQ(verifiers_[0].opened, 1);
  EXPECT_EQ(verifiers_[1].opened, 1);
  EXPECT_EQ(remote.failovers(), 0);
}

// A verifier that makes none is not asked: its refusal would be the request's
// end while those that make some are down for a moment.
TEST_F(VerifierPoolTest, AnEmbeddingWaitsForAVerifierThatMakesSome) {
  for (const int i : {0, 2}) verifiers_[i].embeds = false;
  verifiers_[1].embedding_size = 8;
  VerifierPool& pool = Start();
  EXPECT_EQ(pool.Info()->embedding_size, 8);
  EXPECT_EQ(pool.Info()->model_pooling, Pooling::kMean);
  verifiers_[1].down = true;
  RemoteVerifierOptions options;
  options.connect_timeout = absl::Milliseconds(50);
  RemoteVerifier remote(options, pool);
  SessionRequest session;
  session.pooling = Pooling::kMean;
  const std::vector<TokenId> text = {1};
  EXPECT_THAT(remote.Open(session, text).status(),
              StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_EQ(verifiers_[0].opened + verifiers_[2].opened, 0);
  EXPECT_FALSE(pool.Acquire({1}, {}, /*embeds=*/true).has_value());
  EXPECT_TRUE(pool.Acquire({1}).has_value());
}

TEST_F(VerifierPoolTest, AnotherPoolingIsAnotherModel) {
  for (FakeVerifier& verifier : verifiers_) verifier.embedding_size = 8;
  verifiers_[1].model_pooling = Pooling::kLast;
  VerifierPool& pool = Start();
  EXPECT_EQ(pool.Acquire({0})->id(), 2);
  EXPECT_EQ(pool.Acquire({0, 2})->id(), 1) << "in reserve";
}

TEST_F(VerifierPoolTest, ASessionHasItsConstraintWhereverItIsReplayed) {
  for (int i = 0; i < 2; ++i) verifiers_[i].prefills = true;
  for (int i = 1; i < 3; ++i) verifiers_[i].sessions = 10 * i;
  VerifierPool& pool = Start();
  RemoteVerifier remote({}, pool);
  SessionRequest session;
  session.constraint = {Constraint::Kind::kRegex, "a*", {}};
  const std::vector<TokenId> text = {1};
  FORETOKEN_ASSERT_OK(remote.Open(session, text).status());
  EXPECT_EQ(verifiers_[0].constraint, session.constraint);
  verifiers_[0].down = true;
  RoundRequest round;
  round.length = 1;
  std::thread client([&] { (void)remote.Round(std::move(round), text); });
  EXPECT_TRUE(Eventually([&] { return verifiers_[1].sessions_open == 1; }));
  remote.Cancel();
  client.join();
  EXPECT_EQ(verifiers_[1].constraint, session.constraint);
}

TEST_F(VerifierPoolTest, AConstraintGoesToAVerifierThatUnderstandsIt) {
  verifiers_[0].grammar_version = 0;
  verifiers_[1].grammar_version = kGrammarVersion + 1;
  for (int i = 1; i < 3; ++i) verifiers_[i].sessions = 10 * i;
  verifiers_[2].prefills = true;
  VerifierPool& pool = Start();
  RemoteVerifier remote({}, pool);
  SessionRequest session;
  session.constraint = {Constraint::Kind::kJsonObject, "", {}};
  const std::vector<TokenId> text = {1};
  FORETOKEN_EXPECT_OK(remote.Open(session, text).status());
  EXPECT_EQ(verifiers_[0].opened + verifiers_[1].opened, 0);
  EXPECT_EQ(verifiers_[2].opened, 1);
  // They are well, and serve requests without one.
  verifiers_[0].prefills = true;
  RemoteVerifier other({}, pool);
  FORETOKEN_EXPECT_OK(other.Open(SessionRequest(), text).status());
  EXPECT_EQ(verifiers_[0].opened, 1);
}

TEST_F(VerifierPoolTest, AConstraintThatNoVerifierUnderstandsIsRefused) {
  for (FakeVerifier& verifier : verifiers_) {
    verifier.grammar_version = kGrammarVersion + 1;
  }
  VerifierPool& pool = Start();
  RemoteVerifier remote({}, pool);
  SessionRequest session;
  session.constraint = {Constraint::Kind::kJsonObject, "", {}};
  const std::vector<TokenId> text = {1};
  EXPECT_THAT(
      remote.Open(session, text).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr(absl::StrCat("version ", kGrammarVersion + 1))));
}

TEST_F(VerifierPoolTest, AVerifierThatSeesTheDeadlineFirstIsNotDown) {
  for (FakeVerifier& verifier : verifiers_) verifier.late = true;
  for (int i = 1; i < 3; ++i) verifiers_[i].sessions = 10;
  VerifierPool& pool = Start();
  RemoteVerifier remote({}, pool);
  SessionRequest request;
  request.deadline = MonotonicNow() + absl::Milliseconds(50);
  const std::vector<TokenId> text = {1};
  EXPECT_THAT(remote.Open(std::move(request), text).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  // The least loaded was asked, no other, and it is asked again.
  EXPECT_EQ(verifiers_[0].opened, 1);
  EXPECT_EQ(verifiers_[1].opened + verifiers_[2].opened, 0);
  const auto next = pool.Acquire({});
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->id(), 0);
}

TEST_F(VerifierPoolTest, ADeadlineThatIsNotTheRequestsIsTheVerifiersFault) {
  verifiers_[0].late = true;
  verifiers_[1].prefills = true;
  verifiers_[1].sessions = 5;
  verifiers_[2].sessions = 10;
  VerifierPool& pool = Start();
  RemoteVerifier remote({}, pool);
  SessionRequest request;
  request.deadline = MonotonicNow() + absl::Minutes(1);
  const std::vector<TokenId> text = {1};
  FORETOKEN_EXPECT_OK(remote.Open(std::move(request), text).status());
  EXPECT_EQ(verifiers_[0].opened, 1);
  EXPECT_EQ(verifiers_[1].opened, 1);
  const auto next = pool.Acquire({});
  ASSERT_TRUE(next.has_value());
  EXPECT_NE(next->id(), 0);
}

TEST_F(VerifierPoolTest, ProbesOfNewMembersBringNoElectionForward) {
  verifiers_[1].numerics = 2;
  verifiers_[2].down = true;
  VerifierPool& pool = Start();  // the next timed probe is an hour away
  EXPECT_EQ(pool.Info()->numerics_fingerprint, "numerics-1");
  verifiers_[0].down = true;
  more_.down = true;
  for (int i = 0; i < 6; ++i) {
    const int probes = more_.probes;
    pool.SetMembers(
        {"fake", "fake", "fake", absl::StrCat("new-", i)},
        [&](size_t) -> absl::StatusOr<std::shared_ptr<VerifierPeer>> {
          return std::shared_ptr<VerifierPeer>(std::shared_ptr<void>(), &more_);
        });
    ASSERT_TRUE(Eventually([&] { return more_.probes > probes; }));
  }
  EXPECT_EQ(pool.Info()->numerics_fingerprint, "numerics-1");
}

// Clients that watch health would otherwise refuse requests that only have to
// wait for the election.
TEST_F(VerifierPoolTest, TheServiceIsUpUntilAnotherModelIsElected) {
  for (int i = 1; i < 3; ++i) verifiers_[i].numerics = 2;
  VerifierPool& pool = Start(absl::Milliseconds(5));
  std::atomic<int> changes{0};
  pool.WatchHealth([&] { ++changes; });
  verifiers_[0].down = true;
  EXPECT_TRUE(Eventually(
      [&] { return pool.Info()->numerics_fingerprint == "numerics-2"; }));
  EXPECT_EQ(changes, 0);
  for (int i = 1; i < 3; ++i) verifiers_[i].down = true;
  EXPECT_TRUE(Eventually([&] { return !pool.any_up(); }));
}

TEST_F(VerifierPoolTest, AStreamWhoseModelWasReplacedEndsAtOnce) {
  for (FakeVerifier& verifier : verifiers_) verifier.prefills = true;
  for (int i = 1; i < 3; ++i) {
    verifiers_[i].numerics = 2;
    verifiers_[i].down = true;
  }
  VerifierPool& pool = Start(absl::Milliseconds(2));
  RemoteVerifierOptions options;
  options.failover_timeout = absl::Minutes(2);
  RemoteVerifier remote(options, pool);
  const std::vector<TokenId> text = {1};
  ASSERT_TRUE(remote.Open(SessionRequest(), text).ok());
  EXPECT_FALSE(pool.IsReplaced("numerics-1"));
  verifiers_[0].down = true;
  for (int i = 1; i < 3; ++i) verifiers_[i].down = false;
  ASSERT_TRUE(Eventually([&] { return pool.IsReplaced("numerics-1"); }));
  const absl::Time start = MonotonicNow();
  RoundRequest round;
  round.length = 1;
  EXPECT_THAT(remote.Round(std::move(round), text).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("another model")));
  EXPECT_LT(MonotonicNow() - start, absl::Minutes(1));
  // Not while one of its own is up, though another model is active.
  verifiers_[0].down = false;
  EXPECT_TRUE(Eventually([&] { return !pool.IsReplaced("numerics-1"); }));
}

TEST_F(VerifierPoolTest, WithoutAnAnswerThereIsNoInfo) {
  for (FakeVerifier& verifier : verifiers_) verifier.down = true;
  VerifierPool& pool = Start();
  EXPECT_THAT(pool.Info(), StatusIs(absl::StatusCode::kUnavailable,
                                    HasSubstr("no verifier")));
}

TEST_F(VerifierPoolTest, TheReasonIsKnownWhereNoVerifierWillServe) {
  VerifierPool& pool = Start(absl::Milliseconds(5));
  FORETOKEN_EXPECT_OK(pool.Info());
  verifiers_[0].faulty = true;
  verifiers_[1].faulty = true;
  verifiers_[2].down = true;
  EXPECT_TRUE(Eventually([&] { return !pool.any_up(); }));
  // One may yet come back.
  FORETOKEN_EXPECT_OK(pool.Info());
  verifiers_[2].down = false;
  verifiers_[2].faulty = true;
  const auto fault =
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("bad weights"));
  EXPECT_TRUE(Eventually([&] { return !pool.Info().ok(); }));
  EXPECT_THAT(pool.Info(), fault);
  verifiers_[1].faulty = false;
  EXPECT_TRUE(Eventually([&] { return pool.Info().ok(); }));
  EXPECT_TRUE(Eventually([&] { return pool.any_up(); }));
}

TEST_F(VerifierPoolTest, TheListenerHearsWhenTheLastGoesAndTheFirstComes) {
  VerifierPool& pool = Start(absl::Milliseconds(5));
  std::atomic<int> ups{0}, downs{0};
  EXPECT_TRUE(pool.any_up());
  pool.WatchHealth([&] { ++(pool.any_up() ? ups : downs); });
  verifiers_[0].down = true;
  verifiers_[1].down = true;
  const int probes = verifiers_[2].probes;
  EXPECT_TRUE(Eventually([&] { return verifiers_[2].probes >= probes + 3; }));
  EXPECT_EQ(downs, 0);  // one is left
  verifiers_[2].down = true;
  EXPECT_TRUE(Eventually([&] { return downs > 0; }));
  verifiers_[1].down = false;
  EXPECT_TRUE(Eventually([&] { return ups > 0; }));
  pool.WatchHealth(nullptr);
  EXPECT_EQ(ups, 1);
  EXPECT_EQ(downs, 1);
}

TEST_F(VerifierPoolTest, TheListenerChangesWhileAProbeIsUnanswered) {
  VerifierPool& pool = Start(absl::Milliseconds(5));
  verifiers_[2].waits = true;
  ASSERT_TRUE(Eventually([&] { return verifiers_[2].waiting.load(); }));
  std::atomic<int> changes{0};
  // Does not wait for the answer, which the prober waits for.
  for (int i = 0; i < 100; ++i) pool.WatchHealth([&] { ++changes; });
  for (FakeVerifier& verifier : verifiers_) verifier.down = true;
  verifiers_[2].unanswered(absl::UnavailableError("down"));
  EXPECT_TRUE(Eventually([&] { return changes > 0; }));
  pool.WatchHealth(nullptr);
  EXPECT_EQ(changes, 1);
}

}  // namespace
}  // namespace foretoken::orchestrator
