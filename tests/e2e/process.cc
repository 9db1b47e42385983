#include "tests/e2e/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"

namespace foretoken::testing {

Process::Process(std::vector<std::string> args) {
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  FORETOKEN_CHECK(
      posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
}

Process::~Process() { End(SIGKILL); }

int Process::End(int signal_number) {
  if (pid_ == 0) return 0;
  kill(pid_, signal_number);
  int status = 0;
  FORETOKEN_CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::unique_ptr<Process> StartVerifierProcess(
    const std::string& address, const std::vector<std::string>& more_flags) {
  std::vector<std::string> args = {
      FORETOKEN_VERIFIER_BINARY, "--listen=" + address,
      "--random-model=d_model=128,layers=4,heads=4,kv_heads=2,d_ff=256,"
      "vocab=256,max_positions=2048",
      "--threads=1", "--metrics-listen="};
  args.insert(args.end(), more_flags.begin(), more_flags.end());
  return std::make_unique<Process>(std::move(args));
}

bool HasAnswered(const TestOrchestrator& orchestrator) {
  return Eventually([&] { return orchestrator.service->pool().Info().ok(); });
}

}  // namespace foretoken::testing
