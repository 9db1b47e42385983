// WatchedGenerator over real gRPC, with a server that does what a test says.
#include "services/gateway/adapters/watched_generator.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/rpc/generation_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/scripted_generation_server.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::InfoOf;
using ::foretoken::testing::ScriptedServer;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WatchedGeneratorTest : public ::testing::Test {
 protected:
  WatchedGeneratorTest() { server_.SetInfo({}, InfoOf("demo")); }

  std::unique_ptr<WatchedGenerator> Make(bool with_principals = false) {
    return std::make_unique<WatchedGenerator>(
        rpc::GenerationClient::Connect(server_.address(), {}).value(),
        with_principals,
        WatchedGenerator::ModelTimes{absl::Milliseconds(5), absl::Minutes(10)});
  }

  ScriptedServer server_;
};

TEST_F(WatchedGeneratorTest, TheModelIsWhatTheOrchestratorSays) {
  const auto generator = Make();
  ASSERT_TRUE(
      Eventually([&] { return generator->Info(absl::InfiniteFuture()).ok(); }));
  const auto info = generator->Info(absl::InfiniteFuture());
  EXPECT_EQ(info->model, "demo");
  EXPECT_EQ(info->max_positions, 100);
  EXPECT_THAT(info->modes, ElementsAre("off", "auto"));
  EXPECT_EQ(info->tokenizer_fingerprint, "print");
  EXPECT_TRUE(generator->Ready());
  // It is asked again, without any request.
  server_.SetInfo({}, InfoOf("other"));
  EXPECT_TRUE(Eventually([&] {
    return generator->Info(absl::InfiniteFuture())->model == "other";
  }));
}

TEST_F(WatchedGeneratorTest, WithoutAnAnswerThereIsNoModel) {
  server_.SetInfo({grpc::StatusCode::UNAVAILABLE, "no verifier"}, {});
  const auto generator = Make();
  EXPECT_THAT(
      generator->Info(absl::InfiniteFuture()),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not answered yet")));
  EXPECT_FALSE(generator->Ready());
  server_.SetInfo({}, InfoOf("demo"));
  EXPECT_TRUE(Eventually([&] { return generator->Ready(); }));
}

TEST_F(WatchedGeneratorTest, WithKeysItNeedsLeaveToSpeakForItsCallers) {
  const auto generator = Make(/*with_principals=*/true);
  // A server that does not refuse a bad name has ignored it.
  ASSERT_TRUE(Eventually([&] {
    const auto info = generator->Info(absl::InfiniteFuture());
    return absl::StrContains(info.status().message(), "speaks_for_others");
  }));
  EXPECT_FALSE(generator->Ready());
  server_.CheckPrincipals(true);
  EXPECT_TRUE(
      Eventually([&] { return generator->Info(absl::InfiniteFuture()).ok(); }));
  // Token files are read again, so leave may end, and come back.
  server_.CheckPrincipals(false);
  EXPECT_TRUE(Eventually([&] {
    const auto info = generator->Info(absl::InfiniteFuture());
    return absl::StrContains(info.status().message(), "speaks_for_others");
  }));
  EXPECT_FALSE(generator->Ready());
  server_.CheckPrincipals(true);
  EXPECT_TRUE(Eventually([&] { return generator->Ready(); }));
}

}  // namespace
}  // namespace foretoken::gateway
