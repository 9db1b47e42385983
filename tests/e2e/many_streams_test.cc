// Verifier processes are killed with signal 9 under many streams at once: every
// stream writes what it writes undisturbed.
#include <signal.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/verifier_process.h"
#include "tests/integration/cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

constexpr int kStreams = 20;
constexpr int kTokens = 500;

// Greedy and sampled ones, with and without drafts, of many lengths.
v1::GenerateRequest RequestOf(int stream) {
  v1::GenerateRequest request =
      MakeRequest(MakePrompt(100 + stream, 10 + 7 * stream, 256),
                  stream % 3 == 0 ? "off" : "prompt_lookup", kTokens);
  request.set_ignore_eos(true);
  if (stream % 2 == 1) {
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_temperature(0.8f);
    sampling.set_seed(1000 + stream);
    if (stream % 4 == 1) sampling.set_top_p(0.95f);
    if (stream % 4 == 3) sampling.set_repetition_penalty(1.1f);
  }
  return request;
}

// Generous where the machine is busy: a restart may take its time.
std::unique_ptr<TestOrchestrator> StartPatient(
    const std::vector<std::string>& verifiers) {
  orchestrator::OrchestratorService config;
  config.verifiers = verifiers;
  config.server.verifier.connect_timeout = absl::Minutes(2);
  config.server.verifier.failover_timeout = absl::Minutes(2);
  return StartOrchestrator(config);
}

// Runs all streams at once; the number of each delta comes to `on_delta`.
std::vector<std::vector<TokenId>> RunAll(
    const WireClient& client, const std::function<void(int delta)>& on_delta) {
  std::vector<std::vector<TokenId>> outputs(kStreams);
  std::vector<std::thread> threads;
  for (int stream = 0; stream < kStreams; ++stream) {
    threads.emplace_back([&, stream] {
      int deltas = 0;
      const auto result =
          client.Generate(RequestOf(stream), absl::Now() + absl::Minutes(5),
                          [&](const v1::GenerateDelta& delta) {
                            outputs[stream].insert(outputs[stream].end(),
                                                   delta.token_ids().begin(),
                                                   delta.token_ids().end());
                            on_delta(++deltas);
                            return true;
                          });
      FORETOKEN_EXPECT_OK(result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outputs;
}

// Calls `event` once: when `streams` streams have shown their n-th delta.
class WhenStreamsReach {
 public:
  WhenStreamsReach(int streams, int n, std::function<void()> event)
      : streams_(streams), n_(n), event_(std::move(event)) {}
  void operator()(int delta) {
    if (delta == n_ && ++reached_ == streams_) event_();
  }

 private:
  const int streams_;
  const int n_;
  const std::function<void()> event_;
  std::atomic<int> reached_{0};
};

class ManyStreamsTest : public ::testing::Test {
 protected:
  // What every stream writes when nothing happens.
  static std::vector<std::vector<TokenId>> Undisturbed() {
    const TempDir dir;
    const std::string address = "unix:" + dir.File("v.sock");
    const auto verifier = StartVerifierProcess(address);
    const auto orchestrator = StartPatient({address});
    EXPECT_TRUE(HasAnswered(*orchestrator));
    return RunAll(*orchestrator->client, [](int) {});
  }

  static void ExpectEqual(const std::vector<std::vector<TokenId>>& got,
                          const std::vector<std::vector<TokenId>>& expected) {
    for (int stream = 0; stream < kStreams; ++stream) {
      EXPECT_EQ(expected[stream].size(), static_cast<size_t>(kTokens));
      EXPECT_EQ(got[stream], expected[stream]) << "stream " << stream;
    }
  }
};

TEST_F(ManyStreamsTest, AllGoOnWhenTheirOnlyVerifierIsKilledAndRestarted) {
  const auto expected = Undisturbed();
  const TempDir dir;
  const std::string address = "unix:" + dir.File("v.sock");
  // Room for a few of them at a time: preempted and replayed sessions are
  // killed as well.
  const std::vector<std::string> small_cache = {"--kv-cache-bytes=4194304"};
  auto verifier = StartVerifierProcess(address, small_cache);
  const auto orchestrator = StartPatient({address});
  ASSERT_TRUE(HasAnswered(*orchestrator));
  const auto restart = [&] {
    EXPECT_EQ(verifier->End(SIGKILL), -SIGKILL);
    verifier = StartVerifierProcess(address, small_cache);
  };
  // Once while others wait for their first token, once in the midst of it.
  WhenStreamsReach early(1, 2, restart);
  WhenStreamsReach late(kStreams / 2, 40, restart);
  ExpectEqual(RunAll(*orchestrator->client,
                     [&](int delta) {
                       early(delta);
                       late(delta);
                     }),
              expected);
  EXPECT_GE(orchestrator->Sample("foretoken_verifier_failovers_total"), 2);
}

TEST_F(ManyStreamsTest, AllMoveToTheSecondVerifierAndBack) {
  const auto expected = Undisturbed();
  const TempDir dir;
  const std::string a_address = "unix:" + dir.File("a.sock");
  const std::string b_address = "unix:" + dir.File("b.sock");
  auto a = StartVerifierProcess(a_address);
  const auto orchestrator = StartPatient({a_address, b_address});
  ASSERT_TRUE(HasAnswered(*orchestrator));
  // All streams run on the first when it is killed, and the second takes over;
  // then that one is killed, and the first has come back.
  std::unique_ptr<Process> b;
  WhenStreamsReach early(kStreams, 3, [&] {
    b = StartVerifierProcess(b_address);
    a->End(SIGKILL);
  });
  WhenStreamsReach late(kStreams, 60, [&] {
    a = StartVerifierProcess(a_address);
    b->End(SIGKILL);
  });
  ExpectEqual(RunAll(*orchestrator->client,
                     [&](int delta) {
                       early(delta);
                       late(delta);
                     }),
              expected);
  EXPECT_GE(orchestrator->Sample("foretoken_verifier_failovers_total"), 16);
}

}  // namespace
}  // namespace foretoken::testing
