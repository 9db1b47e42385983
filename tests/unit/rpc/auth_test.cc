#include "common/rpc/auth.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/token_names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Time g_now = absl::FromUnixSeconds(1000);

TEST(CallersTest, EveryTokenOfTheFileIsKnownAndNothingElse) {
  const testing::TempDir dir;
  const std::string path = dir.Write(
      "tokens", "# team a\nalpha-alpha-alpha\n\n  beta-beta-beta-beta \n");
  const auto callers = Callers::Load(path);
  FORETOKEN_ASSERT_OK(callers);
  const auto alpha = (*callers)->Find("Bearer alpha-alpha-alpha");
  const auto beta = (*callers)->Find("Bearer beta-beta-beta-beta");
  ASSERT_TRUE(alpha.has_value());
  ASSERT_TRUE(beta.has_value());
  EXPECT_NE(alpha->name, beta->name);
  EXPECT_THAT(alpha->name, Not(HasSubstr("alpha")));
  for (const char* bad : {"", "Bearer ", "alpha-alpha-alpha",
                          "bearer alpha-alpha-alpha", "Bearer alpha-alpha-alph",
                          "Bearer alpha-alpha-alphaa", "Bearer # team a"}) {
    EXPECT_FALSE((*callers)->Find(bad).has_value()) << bad;
  }
}

TEST(CallersTest, ATokenHasANameAShareAndALimit) {
  const testing::TempDir dir;
  const auto callers =
      Callers::Load(dir.Write("tokens",
                              "alpha-alpha-alpha team-a weight=2.5 requests=7\n"
                              "delta-delta-delta team-a tokens_per_minute=900 "
                              "requests_per_minute=60\n"
                              "beta-beta-beta-beta\tteam-a\n"
                              "gamma-gamma-gamma weight=0.5\n"));
  FORETOKEN_ASSERT_OK(callers);
  const auto alpha = (*callers)->Find("Bearer alpha-alpha-alpha");
  ASSERT_TRUE(alpha.has_value());
  EXPECT_EQ(alpha->name, "team-a");
  EXPECT_TRUE(alpha->named);
  EXPECT_EQ(alpha->weight, 2.5);
  EXPECT_EQ(alpha->max_requests, 7);
  // Weight and limit are the account's, whichever token is shown.
  const auto beta = (*callers)->Find("Bearer beta-beta-beta-beta");
  EXPECT_EQ(beta->name, "team-a");
  EXPECT_EQ(beta->weight, 2.5);
  EXPECT_EQ(beta->max_requests, 7);
  EXPECT_EQ(beta->tokens_per_minute, 900);
  EXPECT_EQ(beta->requests_per_minute, 60);
  const auto gamma = (*callers)->Find("Bearer gamma-gamma-gamma");
  EXPECT_FALSE(gamma->named);
  EXPECT_EQ(gamma->weight, 0.5);
  EXPECT_EQ(gamma->max_requests, 0);
  EXPECT_EQ(gamma->tokens_per_minute, 0);
  EXPECT_EQ(gamma->requests_per_minute, 0);
}

TEST(CallersTest, ATokenWithoutANameHasItsAccountAlone) {
  const testing::TempDir dir;
  const auto callers = Callers::Load(dir.Write("one", "alpha-alpha-alpha\n"));
  FORETOKEN_ASSERT_OK(callers);
  const std::string name = (*callers)->Find("Bearer alpha-alpha-alpha")->name;
  EXPECT_THAT(name, ::testing::MatchesRegex("token-[0-9a-f]{16}"));
  const auto load = [&](const std::string& lines) {
    return Callers::Load(dir.Write("two", lines)).status();
  };
  const std::string named = absl::StrCat("beta-beta-beta-beta ", name, "\n");
  // In either order, and where the token itself comes twice.
  for (const std::string& twice :
       {absl::StrCat("# x\nalpha-alpha-alpha\n", named),
        absl::StrCat(named, "alpha-alpha-alpha\n"),
        std::string("# x\nalpha-alpha-alpha\nalpha-alpha-alpha weight=2\n")}) {
    EXPECT_THAT(load(twice),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("two:2: another line has this token"),
                               HasSubstr(name), Not(HasSubstr("alpha")))))
        << twice;
  }
  FORETOKEN_EXPECT_OK(load(named + "gamma-gamma-gamma\n"));
  FORETOKEN_EXPECT_OK(load("alpha-alpha-alpha\ngamma-gamma-gamma\n"));
}

TEST(CallersTest, OnlyANamedTokenSpeaksForOthers) {
  const testing::TempDir dir;
  const auto callers = Callers::Load(
      dir.Write("tokens",
                "gateway-gateway-gateway gateway speaks_for_others weight=3\n"
                "alpha-alpha-alpha-alpha alice weight=2\n"));
  FORETOKEN_ASSERT_OK(callers);
  const auto name = [&](const char* token, const char* principal) {
    const auto caller = (*callers)->Find(token, principal);
    return caller.has_value() ? caller->name : "nobody";
  };
  constexpr char kGateway[] = "Bearer gateway-gateway-gateway";
  constexpr char kAlice[] = "Bearer alpha-alpha-alpha-alpha";
  EXPECT_EQ(name(kGateway, ""), "gateway");
  EXPECT_EQ((*callers)->Find(kGateway, "alice")->weight, 2);
  // Without an account: authenticated, with the usual share.
  const auto bob = (*callers)->Find(kGateway, "bob");
  EXPECT_EQ(bob->name, "bob");
  EXPECT_TRUE(bob->authenticated);
  EXPECT_FALSE(bob->named);
  EXPECT_EQ(bob->weight, 1);
  // Never another caller in the place of one whose name is bad.
  EXPECT_EQ(name(kGateway, "no name"), "nobody");
  EXPECT_EQ(
      name(kGateway, std::string(Callers::kMaxNameBytes + 1, 'a').c_str()),
      "nobody");
  EXPECT_EQ(name(kAlice, "gateway"), "alice");
  EXPECT_EQ(name("Bearer none-none-none-none", "alice"), "nobody");
}

TEST(CallersTest, AFileOfNamesHasNothingElse) {
  const testing::TempDir dir;
  FORETOKEN_EXPECT_OK(CheckNamesOnly(
      dir.Write("names", "alpha-alpha-alpha alice\nbeta-beta-beta-beta\n")));
  for (const char* bad :
       {"weight=2", "alice requests=1", "alice requests_per_minute=5",
        "tokens_per_minute=5", "alice speaks_for_others"}) {
    EXPECT_THAT(CheckNamesOnly(dir.Write(
                    "bad", absl::StrCat("alpha-alpha-alpha ", bad, "\n"))),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("bad:1"),
                               HasSubstr("orchestrator's token file"))))
        << bad;
  }
}

TEST(CallersTest, RefusesABadFileByLineWithoutShowingTheToken) {
  const testing::TempDir dir;
  EXPECT_THAT(Callers::Load(dir.Write("short", "# x\nhunter2\n")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("short:2"), Not(HasSubstr("hunter2")))));
  for (const char* bad :
       {"a b", "other", "other weight=2", "weight=0", "weight=nan",
        "weight=101", "requests=0", "requests=-1", "requests=5000",
        "requests_per_minute=0", "tokens_per_minute=x", "a weight=1 b",
        "colour=red"}) {
    EXPECT_THAT(Callers::Load(
                    dir.Write("bad", absl::StrCat("alpha-alpha-alpha ", bad))),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("bad:1"), Not(HasSubstr("alpha")))))
        << bad;
  }
  for (const char* other : {"weight=3", "requests=4", "tokens_per_minute=5"}) {
    EXPECT_THAT(
        Callers::Load(dir.Write(
            "two", absl::StrCat("alpha-alpha-alpha a weight=2 requests=3 "
                                "tokens_per_minute=4\n",
                                "beta-beta-beta-beta a ", other, "\n"))),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("two:2")))
        << other;
  }
  EXPECT_THAT(Callers::Load(dir.Write("empty", "# only a comment\n")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("holds 0 tokens")));
  EXPECT_THAT(Callers::Load(dir.File("none")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(CallersTest, AChangedFileIsReadAgainAndABadOneIsNot) {
  const testing::TempDir dir;
  const auto callers = Callers::Load(dir.Write("tokens", "alpha-alpha-alpha\n"),
                                     [] { return g_now; });
  FORETOKEN_ASSERT_OK(callers);
  const auto knows = [&](const char* token) {
    return (*callers)->Find(absl::StrCat("Bearer ", token)).has_value();
  };
  dir.Write("tokens", "beta-beta-beta-beta\n");
  EXPECT_TRUE(knows("alpha-alpha-alpha"));  // not looked at yet
  g_now += kReloadInterval;
  EXPECT_FALSE(knows("alpha-alpha-alpha"));
  EXPECT_TRUE(knows("beta-beta-beta-beta"));
  dir.Write("tokens", "short\n");
  g_now += kReloadInterval;
  EXPECT_TRUE(knows("beta-beta-beta-beta"));
}

TEST(LoadClientTokenTest, AClientSendsTheFirstTokenOfItsFile) {
  const testing::TempDir dir;
  const auto token = LoadClientToken(
      dir.Write("t", "# mine\nalpha-alpha-alpha me\nbeta-beta-beta-beta\n"));
  FORETOKEN_ASSERT_OK(token);
  EXPECT_EQ(*token, "alpha-alpha-alpha");
}

}  // namespace
}  // namespace foretoken::rpc
