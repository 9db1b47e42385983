#include "tests/support/private_redis.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/base/check.h"

extern char** environ;

namespace foretoken::testing {
namespace {

constexpr char kServer[] = "redis-server";
constexpr char kClient[] = "redis-cli";

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

pid_t Spawn(const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  FORETOKEN_CHECK(error == 0);
  return pid;
}

}  // namespace

bool PrivateRedis::Installed() {
  return std::system(
             "command -v redis-server >/dev/null && "
             "command -v redis-cli >/dev/null") == 0;
}

PrivateRedis::PrivateRedis(std::string password)
    : password_(std::move(password)) {}

PrivateRedis::~PrivateRedis() {
  if (pid_ > 0) Kill();
}

std::string PrivateRedis::url() const {
  return "unix://" + (password_.empty() ? "" : ":" + password_ + "@") +
         socket();
}

void PrivateRedis::Start() {
  FORETOKEN_CHECK(pid_ < 0);
  std::vector<std::string> arguments = {
      kServer, "--port",       "0",  "--unixsocket", socket(),   "--save",
      "",      "--appendonly", "no", "--dir",        dir_.path()};
  if (!password_.empty()) {
    arguments.insert(arguments.end(), {"--requirepass", password_});
  }
  pid_ = Spawn(arguments, dir_.File("redis.log"));
  const std::string ping =
      std::string(kClient) + " -s " + socket() + " PING >/dev/null 2>&1";
  for (int attempt = 0; std::system(ping.c_str()) != 0; ++attempt) {
    FORETOKEN_CHECK(attempt < 3000);
    usleep(10000);
  }
}

void PrivateRedis::Kill() {
  FORETOKEN_CHECK(pid_ > 0);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  unlink(socket().c_str());
}

void PrivateRedis::Pause() { FORETOKEN_CHECK(kill(pid_, SIGSTOP) == 0); }

void PrivateRedis::Resume() { FORETOKEN_CHECK(kill(pid_, SIGCONT) == 0); }

std::string PrivateRedis::Command(
    const std::vector<std::string>& arguments) const {
  std::string command = std::string(kClient) + " -s " + socket();
  if (!password_.empty()) command += " --no-auth-warning -a " + password_;
  for (const std::string& argument : arguments) {
    command += " " + Quoted(argument);
  }
  FILE* const pipe = popen(command.c_str(), "r");
  FORETOKEN_CHECK(pipe != nullptr);
  std::string output;
  std::array<char, 4096> chunk;
  while (const size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    output.append(chunk.data(), n);
  }
  FORETOKEN_CHECK(pclose(pipe) == 0);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  return output;
}

}  // namespace foretoken::testing
