#include "services/orchestrator/core/drafters/draft_replicas.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/orchestrator/core/rendezvous.h"
#include "tests/unit/services/orchestrator/drafters/fake_draft_sessions.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Use = DraftReplicas::Use;
using State = CircuitBreaker::State;

TEST(RendezvousTest, ScoresAreTheSameInEveryProcess) {
  // Orchestrators of another build must agree on who owns a scope.
  EXPECT_EQ(RendezvousScore("10.0.0.7:50053", "scope"), 0xd0254693c28af323u);
  EXPECT_NE(RendezvousScore("a", "b"), RendezvousScore("b", "a"));
  EXPECT_NE(StableHash("ab"), StableHash("ba"));
  EXPECT_NE(StableHash(""), StableHash(absl::string_view("\0", 1)));
}

class DraftReplicasTest : public ::testing::Test {
 protected:
  DraftReplicasTest() {
    options_.failures_in_a_row = 2;
    options_.first_backoff = absl::Seconds(10);
    options_.jitter = 0;
    Make(ScopeState::kHistory);
  }
  void Make(ScopeState scope_state) {
    replicas_ = std::make_unique<DraftReplicas>(
        "test", options_, [this] { return now_; },
        [this](State state) { states_.push_back(state); }, scope_state);
  }

  void Set(const std::vector<std::string>& names) {
    replicas_->SetMembers(
        names, [&](size_t i) -> absl::StatusOr<DraftEndpoint> {
          const std::string& name = names[i];
          ++connected_[name];
          if (name == "bad") return absl::InvalidArgumentError("no TLS");
          DraftEndpoint endpoint = EndpointOf(sessions_[name]);
          endpoint.up = [this, name] { return down_.count(name) == 0; };
          return endpoint;
        });
  }
  // The replica that a new session goes to; "" if none.
  std::string Chosen(const std::string& scope, Use use = Use::kOpenAhead) {
    const auto lease = replicas_->Choose(scope, use);
    return lease.has_value() ? lease->peer().name() : "";
  }
  std::map<std::string, std::string> Owners(int scopes) {
    std::map<std::string, std::string> owners;
    for (int i = 0; i < scopes; ++i) {
      const std::string scope = absl::StrCat("scope-", i);
      owners[scope] = Chosen(scope);
    }
    return owners;
  }
  void Fail(const std::string& scope) {
    for (int i = 0; i < options_.failures_in_a_row; ++i) {
      auto lease = replicas_->Choose(scope, Use::kAsk);
      lease->peer().breaker().Failure(lease->epoch());
    }
  }

  CircuitBreakerOptions options_;
  absl::Time now_ = absl::UnixEpoch();
  std::map<std::string, FakeDraftSessions> sessions_;
  std::map<std::string, int> connected_;
  std::set<std::string> down_;
  std::vector<State> states_;
  std::unique_ptr<DraftReplicas> replicas_;
};

TEST_F(DraftReplicasTest, AScopeHasOneOwnerAndScopesSpread) {
  Set({"a", "b", "c"});
  const auto owners = Owners(300);
  std::map<std::string, int> counts;
  for (const auto& [scope, owner] : owners) ++counts[owner];
  ASSERT_EQ(counts.size(), 3u);
  // 100 each, give or take five standard deviations.
  for (const auto& [owner, count] : counts) EXPECT_NEAR(count, 100, 41);
  EXPECT_EQ(Owners(300), owners);
  Set({"c", "a", "b"});
  EXPECT_EQ(Owners(300), owners) << "whatever their order";
}

TEST_F(DraftReplicasTest, OnlyTheScopesOfAChangedReplicaMove) {
  Set({"a", "b", "c"});
  const auto before = Owners(300);
  Set({"a", "b", "c", "d"});
  int moved = 0;
  for (const auto& [scope, owner] : Owners(300)) {
    if (owner == before.at(scope)) continue;
    EXPECT_EQ(owner, "test d");
    ++moved;
  }
  EXPECT_NEAR(moved, 75, 38);
  Set({"a", "c"});
  for (const auto& [scope, owner] : Owners(300)) {
    EXPECT_NE(owner, "test b");
    if (before.at(scope) != "test b") {
      EXPECT_EQ(owner, before.at(scope));
    }
  }
}

TEST_F(DraftReplicasTest, RequestsWithoutAScopeSpreadEvenly) {
  Set({"a", "b", "c"});
  std::vector<DraftReplicas::Lease> leases;
  leases.reserve(30);
  std::map<std::string, int> counts;
  for (int i = 0; i < 30; ++i) {
    leases.push_back(*replicas_->Choose("", Use::kAsk));
    ++counts[leases.back().peer().name()];
  }
  EXPECT_THAT(counts,
              ElementsAre(std::pair("test a", 10), std::pair("test b", 10),
                          std::pair("test c", 10)));
  // One after another, they take turns.
  leases.clear();
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) names.insert(Chosen(""));
  EXPECT_EQ(names.size(), 3u);
}

TEST_F(DraftReplicasTest, AHotScopeSpreadsAsFarAsWhatIsKeptOfItAllows) {
  for (const ScopeState kept :
       {ScopeState::kNone, ScopeState::kCache, ScopeState::kHistory}) {
    Make(kept);
    Set({"a", "b"});
    std::vector<DraftReplicas::Lease> leases;
    leases.reserve(20);
    std::vector<int> counts = {0, 0};
    for (int i = 0; i < 20; ++i) {
      leases.push_back(*replicas_->Choose("scope", Use::kOpenAhead));
      ++counts[leases.back().peer().name() == "test a" ? 0 : 1];
    }
    std::sort(counts.begin(), counts.end());
    if (kept == ScopeState::kNone) {
      EXPECT_THAT(counts, ElementsAre(10, 10));
    } else if (kept == ScopeState::kCache) {
      // The owner has 4 and a quarter more, and the last one.
      EXPECT_THAT(counts, ElementsAre(7, 13));
    } else {
      EXPECT_THAT(counts, ElementsAre(0, 20));
    }
  }
}

TEST_F(DraftReplicasTest, AnIdleReplicaThatMayNotBeAskedDoesNotCountAsIdle) {
  Make(ScopeState::kCache);
  Set({"a", "b", "c"});
  const std::string owner = Chosen("scope");
  Fail("scope");  // the owner's breaker opens
  std::vector<DraftReplicas::Lease> leases;
  leases.reserve(20);
  std::map<std::string, int> counts;
  for (int i = 0; i < 20; ++i) {
    leases.push_back(*replicas_->Choose("scope", Use::kOpenAhead));
    ++counts[leases.back().peer().name()];
  }
  EXPECT_EQ(counts.count(owner), 0u);
  ASSERT_EQ(counts.size(), 2u);
  for (const auto& [name, count] : counts) EXPECT_GE(count, 7) << name;
}

TEST_F(DraftReplicasTest, AReplacementIsAnotherReplica) {
  Set({"a"});
  const int id = replicas_->Choose("", Use::kAsk)->id();
  EXPECT_FALSE(replicas_->Choose("", Use::kReplace, id).has_value());
  EXPECT_TRUE(replicas_->Choose("", Use::kAsk, id).has_value());
  Set({"a", "b"});
  down_ = {"b"};
  EXPECT_EQ(replicas_->Choose("", Use::kReplace, id)->peer().name(), "test b");
}

TEST_F(DraftReplicasTest, OneThatIsNotUpIsLeftAloneUntilItIs) {
  Set({"a", "b"});
  const std::string owner = Chosen("scope");
  const std::string other = owner == "test a" ? "test b" : "test a";
  down_ = {owner.substr(5)};
  EXPECT_EQ(Chosen("scope"), other);
  EXPECT_EQ(Chosen(""), other);
  down_ = {"a", "b"};
  EXPECT_EQ(Chosen("scope"), owner) << "for lack of a better one";
  down_.clear();
  EXPECT_EQ(Chosen("scope"), owner);
}

TEST_F(DraftReplicasTest, OneThatFailsIsReplacedAndProbedByTheFirstAsk) {
  Set({"a", "b"});
  const std::string owner = Chosen("scope");
  const std::string other = owner == "test a" ? "test b" : "test a";
  Fail("scope");
  EXPECT_EQ(Chosen("scope", Use::kAsk), other);
  EXPECT_EQ(Chosen("scope"), other);
  now_ += options_.first_backoff;
  // No session is opened ahead: the first ask is the probe, and one only.
  EXPECT_EQ(Chosen("scope"), "");
  EXPECT_EQ(Chosen("scope", Use::kReplace), other);
  {
    auto probe = replicas_->Choose("scope", Use::kAsk);
    EXPECT_EQ(probe->peer().name(), owner);
    EXPECT_EQ(Chosen("scope", Use::kAsk), other);
    probe->peer().breaker().Success();
  }
  EXPECT_EQ(Chosen("scope"), owner);
}

TEST_F(DraftReplicasTest, TheServiceIsAsWellAsItsBestReplica) {
  Set({"a", "b"});
  Fail("scope");
  EXPECT_THAT(states_, IsEmpty());
  Fail("scope");  // the other one
  EXPECT_THAT(states_, ElementsAre(State::kOpen));
  EXPECT_EQ(Chosen("scope", Use::kAsk), "");
  // One that is new answers; one that is gone has no say.
  Set({"a", "b", "c"});
  EXPECT_THAT(states_, ElementsAre(State::kOpen, State::kClosed));
  Set({"a", "b"});
  EXPECT_THAT(states_, ElementsAre(State::kOpen, State::kClosed, State::kOpen));
}

TEST_F(DraftReplicasTest, OneThatIsGoneLivesAsLongAsItsSessions) {
  Set({"a"});
  auto lease = replicas_->Choose("", Use::kAsk);
  Set({"b"});
  EXPECT_EQ(replicas_->size(), 2u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Chosen(""), "test b");
  // It comes back before its session ends: the same client.
  Set({"a", "b"});
  EXPECT_EQ(connected_["a"], 1);
  Set({"b"});
  lease.reset();
  EXPECT_EQ(replicas_->size(), 2u);
  Set({"b"});
  EXPECT_EQ(replicas_->size(), 1u);
  Set({"a", "b"});
  EXPECT_EQ(connected_["a"], 2);
}

TEST_F(DraftReplicasTest, OneThatCannotBeConnectedIsTriedAgain) {
  Set({"bad", "a"});
  Set({"bad", "a"});
  EXPECT_EQ(connected_["bad"], 2);
  EXPECT_EQ(connected_["a"], 1);
  EXPECT_EQ(replicas_->size(), 1u);
}

// Phrases that are those of one replica.
class FakePhrases final : public SharedPhrases {
 public:
  explicit FakePhrases(TokenId token) : token_(token) {}
  std::unique_ptr<Fetch> GetPhrases(const PhraseQuery&, Done done) override {
    done({{token_, token_}});
    return nullptr;
  }

 private:
  const TokenId token_;
};

TEST_F(DraftReplicasTest, PhrasesComeFromWhereTheScopeIsDrafted) {
  FakeDraftSessions none;
  FakePhrases phrases[] = {FakePhrases(0), FakePhrases(1)};
  replicas_->SetMembers(
      {"a", "b"}, [&](size_t i) { return EndpointOf(none, &phrases[i]); });
  std::set<TokenId> seen;
  for (int i = 0; i < 50; ++i) {
    PhraseQuery query;
    query.cache_scope = absl::StrCat("scope-", i);
    std::vector<Phrase> got;
    replicas_->GetPhrases(query,
                          [&](std::vector<Phrase> found) { got = found; });
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0][0], Chosen(query.cache_scope) == "test a" ? 0 : 1);
    seen.insert(got[0][0]);
  }
  EXPECT_EQ(seen.size(), 2u);
  replicas_->SetMembers({}, [&](size_t) { return DraftEndpoint(); });
  bool told = false;
  EXPECT_EQ(replicas_->GetPhrases(
                {}, [&](std::vector<Phrase> found) { told = found.empty(); }),
            nullptr);
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace foretoken::orchestrator
