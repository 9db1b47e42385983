// Real processes: a verifier is killed with signal 9 under a stream.
#include <signal.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/verifier_process.h"
#include "tests/integration/cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/run_command.h"

namespace foretoken::testing {
namespace {

v1::GenerateRequest Request() {
  v1::GenerateRequest request =
      MakeRequest(MakePrompt(3, 60, 256), "prompt_lookup", 600);
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_top_p(0.95f);
  request.mutable_sampling()->set_seed(11);
  return request;
}

TEST(ProcessTest, AStreamSurvivesKillNineAndRestartOfItsVerifier) {
  const TempDir dir;
  const std::string address = "unix:" + dir.File("v.sock");
  auto verifier = StartVerifierProcess(address);
  orchestrator::OrchestratorService config;
  config.verifiers = {address};
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_TRUE(HasAnswered(*orchestrator));
  const Generated reference = Generate(*orchestrator->client, Request());
  FORETOKEN_ASSERT_OK(reference.status);
  ASSERT_EQ(reference.tokens.size(), 600u);

  for (const int kill_at : {1, 10, 40}) {
    const double before =
        orchestrator->Sample("foretoken_verifier_failovers_total");
    std::vector<TokenId> tokens;
    int deltas = 0;
    const auto result = orchestrator->client->Generate(
        Request(), absl::Now() + absl::Minutes(2),
        [&](const v1::GenerateDelta& delta) {
          tokens.insert(tokens.end(), delta.token_ids().begin(),
                        delta.token_ids().end());
          if (++deltas == kill_at) {
            EXPECT_EQ(verifier->End(SIGKILL), -SIGKILL);
            verifier = StartVerifierProcess(address);
          }
          return true;
        });
    FORETOKEN_EXPECT_OK(result);
    EXPECT_EQ(tokens, reference.tokens) << "killed at delta " << kill_at;
    EXPECT_EQ(orchestrator->Sample("foretoken_verifier_failovers_total"),
              before + 1);
  }
}

TEST(ProcessTest, AStreamMovesToASecondVerifierProcess) {
  const TempDir dir;
  const std::string a_address = "unix:" + dir.File("a.sock");
  const std::string b_address = "unix:" + dir.File("b.sock");
  auto a = StartVerifierProcess(a_address);
  orchestrator::OrchestratorService config;
  config.verifiers = {a_address, b_address};
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_TRUE(HasAnswered(*orchestrator));
  const Generated reference = Generate(*orchestrator->client, Request());
  FORETOKEN_ASSERT_OK(reference.status);

  std::unique_ptr<Process> b;
  std::vector<TokenId> tokens;
  int deltas = 0;
  const auto result = orchestrator->client->Generate(
      Request(), absl::Now() + absl::Minutes(2),
      [&](const v1::GenerateDelta& delta) {
        tokens.insert(tokens.end(), delta.token_ids().begin(),
                      delta.token_ids().end());
        if (++deltas == 10) {
          b = StartVerifierProcess(b_address);
          a->End(SIGKILL);
        }
        return true;
      });
  FORETOKEN_EXPECT_OK(result);
  EXPECT_EQ(tokens, reference.tokens);
}

TEST(ProcessTest, SigtermEndsAProcessCleanly) {
  const TempDir dir;
  const std::string address = "unix:" + dir.File("v.sock");
  auto verifier = StartVerifierProcess(address);
  orchestrator::OrchestratorService config;
  config.verifiers = {address};
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_TRUE(HasAnswered(*orchestrator));
  EXPECT_EQ(verifier->End(SIGTERM), 0);
}

TEST(ProcessTest, BadFlagsExitWithTwoAndHelpWithZero) {
  Process bad({FORETOKEN_VERIFIER_BINARY, "--max-tree-nodes=0"});
  EXPECT_EQ(bad.End(0), 2);
  Process help({FORETOKEN_VERIFIER_BINARY, "--help"});
  EXPECT_EQ(help.End(0), 0);
}

TEST(ProcessTest, EveryProgramNamesItsCommitAndWhetherAGpuModuleWasBuilt) {
  TempDir dir;
  for (const char* binary :
       {FORETOKEN_BINARY, FORETOKEN_LOCAL_BINARY, FORETOKEN_ORCHESTRATOR_BINARY,
        FORETOKEN_VERIFIER_BINARY, FORETOKEN_GATEWAY_BINARY}) {
    const CommandResult ran = RunBinary(binary, dir, "--version");
    EXPECT_EQ(ran.exit_status, 0) << binary;
    EXPECT_THAT(ran.out, ::testing::MatchesRegex(
                             "foretoken[a-z-]* [0-9.]+ \\(commit [0-9a-z.-]+; "
                             "services, PostgreSQL, (no )?GPU module\\)\n"))
        << binary;
  }
}

}  // namespace
}  // namespace foretoken::testing
