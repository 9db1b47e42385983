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

void Process::Signal(int signal_number) {
  FORETOKEN_CHECK(pid_ != 0 && kill(pid_, signal_number) == 0);
}

int Process::End(int signal_number) {
  if (pid_ == 0) return 0;
  kill(pid_, signal_number);
  int status = 0;
  FORETOKEN_CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace foretoken::testing
