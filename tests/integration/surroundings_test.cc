// What the machine does to the services: its clock is set, and nothing reads
// what they log.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics/registry.h"
#include "common/rpc/channel.h"
#include "common/rpc/generation_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/adapters/watched_generator.h"
#include "services/gateway/server.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/gate.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"
#include "tests/support/wall_clock.h"

namespace foretoken::testing {
namespace {

using ::testing::StartsWith;

// A verifier, an orchestrator with a trace of every round, and a gateway.
class SurroundingsTest : public ::testing::Test {
 protected:
  static constexpr int kTokens = 40;

  SurroundingsTest() {
    TestVerifierOptions verifier;
    verifier.fake.vocab_size = kTinyVocabulary;
    verifier.fake.before_pass = [this] { gate_.Pass(); };
    verifier_ = StartVerifier(verifier);
    orchestrator::OrchestratorService config;
    config.verifiers = {verifier_->address()};
    config.tokenizer = dir_.Write("tokenizer.json", TinyTokenizerJson());
    config.server.trace = true;
    orchestrator_ = StartOrchestrator(config);
    rpc::ChannelOptions channel;
    channel.health_service = "foretoken.v1.Generation";
    auto client =
        rpc::GenerationClient::Connect(orchestrator_->address(), channel);
    gateway::GatewayServerOptions options;
    options.http.listen = {"127.0.0.1:0"};
    options.gateway.max_request_time = absl::Seconds(30);
    gateway_ = gateway::GatewayServer::Start(
                   options,
                   std::make_unique<gateway::WatchedGenerator>(
                       std::move(client).value(), /*with_principals=*/false,
                       gateway::WatchedGenerator::ModelTimes()),
                   registry_)
                   .value();
  }
  void SetUp() override {
    ASSERT_TRUE(Eventually([this] {
      return absl::StartsWith(Say("GET /health HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n"),
                              "HTTP/1.1 200");
    }));
  }

  std::string Say(const std::string& text) const {
    const RawConnection client(gateway_->addresses().at(0));
    client.Say(text);
    return client.ReadAll();
  }
  static std::string Completion() {
    const std::string body = absl::StrCat(
        R"({"prompt": "a", "ignore_eos": true, "max_tokens": )", kTokens, "}");
    return absl::StrCat(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Connection: close\r\nContent-Type: application/json\r\n"
        "Content-Length: ",
        body.size(), "\r\n\r\n", body);
  }

  const TempDir dir_;
  Gate gate_;
  metrics::Registry registry_;
  std::unique_ptr<TestVerifier> verifier_;
  std::unique_ptr<TestOrchestrator> orchestrator_;
  std::unique_ptr<gateway::GatewayServer> gateway_;
};

// The attack: a step of 40 s or a day gave seconds of 408 and 503.
TEST_F(SurroundingsTest, StepsOfTheClockEndNoRequest) {
  constexpr int kRequests = 10;
  for (const int64_t seconds : {40, -40, 86400, -86400}) {
    SCOPED_TRACE(seconds);
    // One request goes on while the clock is set.
    gate_.Close();
    const RawConnection running(gateway_->addresses().at(0));
    running.Say(Completion());
    ASSERT_TRUE(Eventually([this] {
      return orchestrator_->Sample("foretoken_requests_running") == 1;
    }));
    {
      const ShiftedWallClock shifted(seconds);
      gate_.Open();
      EXPECT_THAT(running.ReadAll(), StartsWith("HTTP/1.1 200"));
      for (int i = 0; i < kRequests; ++i) {
        EXPECT_THAT(Say(Completion()), StartsWith("HTTP/1.1 200")) << i;
      }
    }
    for (int i = 0; i < kRequests; ++i) {  // and set back
      EXPECT_THAT(Say(Completion()), StartsWith("HTTP/1.1 200")) << i;
    }
  }
}

// Puts a pipe that is not read behind stderr.
class UnreadStderr {
 public:
  UnreadStderr() : kept_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    EXPECT_GT(fcntl(pipe_[1], F_SETPIPE_SZ, 4096), 0);
    EXPECT_EQ(dup2(pipe_[1], STDERR_FILENO), STDERR_FILENO);
  }
  ~UnreadStderr() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
    close(pipe_[0]);
    close(pipe_[1]);
  }

 private:
  const int kept_;
  int pipe_[2] = {-1, -1};
};

// The attack: after three requests with --trace the pipe was full, and service
// and shutdown stood still.
TEST_F(SurroundingsTest, ALogThatIsNotReadStopsNothing) {
  const auto dropped = [this] {
    return orchestrator_->Sample("foretoken_log_lines_dropped_total");
  };
  const double before = dropped();
  const UnreadStderr unread;
  int requests = 0;
  while (dropped() == before && requests < 500) {
    ASSERT_THAT(Say(Completion()), StartsWith("HTTP/1.1 200"));
    ++requests;
  }
  EXPECT_GT(dropped(), before);
  EXPECT_THAT(Say(Completion()), StartsWith("HTTP/1.1 200"));
  gateway_->Drain(absl::Minutes(1));
  gateway_.reset();
  orchestrator_.reset();
}

}  // namespace
}  // namespace foretoken::testing
