// Every part of the five services dies, hangs or talks nonsense under a
// request: the output stays what it is, the request goes on, the metrics tell.
#include "tests/e2e/five_services.h"

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/fake_drafters.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

class FiveServicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FiveServices::Possible()) {
      GTEST_SKIP() << "PostgreSQL or Redis is not installed";
    }
    services_ = std::make_unique<FiveServices>();
    off_ = services_->Write("off");
    FORETOKEN_ASSERT_OK(off_.status);
    ASSERT_FALSE(off_.tokens.empty());
  }

  // As `off`, whatever happens at the fifth delta.
  Written Expect(const std::string& mode,
                 const std::function<void()>& at_fifth = nullptr) {
    Written written = services_->Write(mode, at_fifth);
    FORETOKEN_EXPECT_OK(written.status);
    EXPECT_EQ(written.tokens, off_.tokens) << mode;
    return written;
  }
  double Of(Part part, const std::string& sample) const {
    return services_->Metric(part, sample);
  }

  // On those that an orchestrator uses.
  bool NothingIsHeld() const {
    return Of(Part::kVerifier, "foretoken_sessions") == 0 &&
           Of(Part::kVerifier, "foretoken_streams") == 0 &&
           Of(Part::kVerifier, "foretoken_kv_pages_free") ==
               Of(Part::kVerifier, "foretoken_kv_pages") &&
           Of(Part::kDraftWorker, "foretoken_draft_worker_sessions") == 0 &&
           Of(Part::kDraftWorker, "foretoken_draft_worker_streams") == 0 &&
           Of(Part::kTrieDrafter, "foretoken_trie_sessions") == 0 &&
           Of(Part::kTrieDrafter, "foretoken_trie_streams") == 0 &&
           Of(Part::kCrest, "foretoken_crest_streams") == 0;
  }

  std::unique_ptr<FiveServices> services_;
  Written off_;
};

TEST_F(FiveServicesTest, EveryModeWritesWhatOffWrites) {
  for (const char* mode : {"prompt_lookup", "ngram_trie", "crest",
                           "draft_model", "lookahead", "ouroboros", "auto"}) {
    Expect(mode);
  }
}

TEST_F(FiveServicesTest, RestServesAsABaselineBesideCrest) {
  services_->ServeRestToo();
  EXPECT_TRUE(Soon([&] {
    const Written written =
        Expect(absl::StrCat("crest:datastore=", kRestDatastore));
    return written.answered() > 0 &&
           written.result.speculation().accepted_tokens() > 0;
  }));
  // REST takes no match below two tokens; of n-grams most hits are of one.
  const auto hits = [&](int n) {
    return Of(
        Part::kCrest,
        absl::StrCat("foretoken_crest_lookups_total{result=\"hit_", n, "\"}"));
  };
  EXPECT_EQ(hits(1), 0);
  EXPECT_GT(hits(2) + hits(3), 0);
}

struct DrafterCase {
  Part part;
  const char* service;
  const char* mode;
};

class DrafterFailureTest : public FiveServicesTest,
                           public ::testing::WithParamInterface<DrafterCase> {
 protected:
  double Breaker() const {
    return Of(Part::kOrchestrator,
              absl::StrCat("foretoken_breaker_state{service=\"",
                           GetParam().service, "\"}"));
  }
  bool Opens() {
    return Soon([&] {
      Expect(GetParam().mode);
      return Breaker() > 0;
    });
  }
  bool ClosesAndDrafts() {
    return Soon([&] {
      const Written written = Expect(GetParam().mode);
      return Breaker() == 0 && written.answered() > 0;
    });
  }
};

TEST_P(DrafterFailureTest, KilledItIsLeftAloneUntilItIsBack) {
  const auto [part, service, mode] = GetParam();
  EXPECT_TRUE(ClosesAndDrafts());
  Expect(mode, [&] { services_->process(part).End(SIGKILL); });
  EXPECT_TRUE(Opens());
  services_->Start(part);
  EXPECT_TRUE(ClosesAndDrafts());
}

TEST_P(DrafterFailureTest, HungItIsLeftAloneUntilItGoesOn) {
  const auto [part, service, mode] = GetParam();
  Expect(mode, [&] { services_->process(part).Signal(SIGSTOP); });
  EXPECT_TRUE(Opens());
  services_->process(part).Signal(SIGCONT);
  EXPECT_TRUE(ClosesAndDrafts());
}

TEST_P(DrafterFailureTest, NonsenseIsDroppedAndItIsLeftAlone) {
  const auto [part, service, mode] = GetParam();
  std::unique_ptr<FakeDrafters> fake;
  Expect(mode, [&] {
    services_->process(part).End(SIGKILL);
    fake = std::make_unique<FakeDrafters>(services_->address(part));
    fake->Behave(Behaviour::kBadParents);
  });
  EXPECT_TRUE(Opens());
  EXPECT_TRUE(Soon([&] {
    Expect(mode);
    return fake->opened() > 0;
  })) << "nobody heard the nonsense";
  fake.reset();
  services_->Start(part);
  EXPECT_TRUE(ClosesAndDrafts());
}

INSTANTIATE_TEST_SUITE_P(
    All, DrafterFailureTest,
    ::testing::Values(
        DrafterCase{Part::kDraftWorker, "draft_worker", "draft_model"},
        DrafterCase{Part::kTrieDrafter, "trie_drafter", "ngram_trie"},
        DrafterCase{Part::kCrest, "crest", "crest"}),
    [](const auto& test) { return std::string(test.param.service); });

TEST_F(FiveServicesTest, RedisMayDieOrHangAndComeBack) {
  const auto up = [&](double value) {
    return Soon([&] {
      Expect("ngram_trie");
      return Of(Part::kTrieDrafter, "foretoken_redis_up") == value;
    });
  };
  EXPECT_TRUE(up(1));
  Expect("ngram_trie", [&] { services_->redis().Kill(); });
  EXPECT_TRUE(up(0));
  services_->redis().Start();
  EXPECT_TRUE(up(1));
  Expect("auto", [&] { services_->redis().Pause(); });
  EXPECT_TRUE(up(0));
  services_->redis().Resume();
  EXPECT_TRUE(up(1));
}

TEST_F(FiveServicesTest, PostgresMayDieOrHangAndComeBack) {
  const auto drafts = [&] { return Expect("crest").answered() > 0; };
  EXPECT_TRUE(Soon(drafts));
  Expect("crest", [&] { services_->postgres().Kill(); });
  EXPECT_TRUE(Soon(drafts)) << "it holds its datastore in memory";
  services_->postgres().Start();
  Expect("auto", [&] { services_->postgres().Pause(); });
  EXPECT_TRUE(Soon(drafts));
  services_->postgres().Resume();
  // A crest service that starts now finds its datastore.
  services_->process(Part::kCrest).End(SIGKILL);
  services_->Start(Part::kCrest);
  EXPECT_TRUE(Soon(drafts));
}

TEST_F(FiveServicesTest, ATrieDrafterStartsWarmAfterARestart) {
  const auto events = [&](const char* result) {
    return Of(Part::kTrieDrafter,
              absl::StrCat("foretoken_warm_start_events_total{result=\"",
                           result, "\"}"));
  };
  EXPECT_TRUE(Soon([&] {
    Expect("auto");
    return events("written") > 0;
  }));
  EXPECT_EQ(services_->process(Part::kTrieDrafter).End(SIGTERM), 0);
  services_->Start(Part::kTrieDrafter);
  EXPECT_EQ(events("loaded"), 0);
  EXPECT_TRUE(Soon([&] {
    Expect("auto");
    return events("loaded") > 0 &&
           Of(Part::kTrieDrafter,
              "foretoken_trie_scope_lookups_total{result=\"history_hit\"}") > 0;
  }));
}

TEST_F(FiveServicesTest, AHungOrchestratorHoldsNothingForLong) {
  std::atomic<bool> hung{false};
  Written cut;
  std::thread client([&] {
    cut = services_->Write("auto", [&] {
      services_->process(Part::kOrchestrator).Signal(SIGSTOP);
      hung = true;
    });
  });
  EXPECT_TRUE(Soon([&] { return hung.load(); }));
  EXPECT_GT(Of(Part::kVerifier, "foretoken_streams"), 0);
  EXPECT_TRUE(Soon([&] { return NothingIsHeld(); }));
  services_->process(Part::kOrchestrator).End(SIGKILL);
  client.join();
  EXPECT_EQ(cut.status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(FiveServicesTest, AKilledOrchestratorLeavesNothingBehind) {
  bool held = false;
  const Written cut = services_->Write("auto", [&] {
    held = Of(Part::kVerifier, "foretoken_sessions") == 1 &&
           Of(Part::kTrieDrafter, "foretoken_trie_sessions") == 1;
    services_->process(Part::kOrchestrator).End(SIGKILL);
  });
  EXPECT_TRUE(held);
  EXPECT_EQ(cut.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Soon([&] { return NothingIsHeld(); }));
  services_->Start(Part::kOrchestrator);
  Expect("auto");
}

}  // namespace
}  // namespace foretoken::testing
