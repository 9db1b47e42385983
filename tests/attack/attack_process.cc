#include "tests/attack/attack_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/string_view.h"
#include "common/base/json.h"

extern char** environ;

namespace foretoken::attack {
namespace {

constexpr char kThisProgram[] = "/proc/self/exe";

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttackProcess>> AttackProcess::Start(
    const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  std::vector<char*> argv = {const_cast<char*>("foretoken-attack")};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, kThisProgram, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return absl::ErrnoToStatus(error, "cannot start the attackers");
  }
  return std::unique_ptr<AttackProcess>(new AttackProcess(pid, ends[0]));
}

AttackProcess::~AttackProcess() {
  if (pid_ != 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

bool AttackProcess::Attacks() const {
  pollfd output = {output_, POLLIN, 0};
  return poll(&output, 1, 0) == 0;
}

absl::StatusOr<AttackProcess::Report> AttackProcess::Finish() {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t bytes = read(output_, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    text.append(buffer, static_cast<size_t>(bytes));
  }
  int status = 0;
  rusage usage{};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InternalError("the attackers have failed");
  }
  Report report;
  report.processor_s = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  report.attacks = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!report.attacks.is_object()) {
    return absl::InternalError("the attackers have printed no report");
  }
  return report;
}

}  // namespace foretoken::attack
