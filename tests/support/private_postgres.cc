#include "tests/support/private_postgres.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/base/check.h"

namespace foretoken::testing {
namespace {

namespace fs = std::filesystem;

// Debian keeps the server's programs off the PATH.
std::string BinFolder() {
  std::string newest;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator("/usr/lib/postgresql", ignored)) {
    const std::string bin = entry.path().string() + "/bin";
    if (access((bin + "/initdb").c_str(), X_OK) == 0 && bin > newest) {
      newest = bin;
    }
  }
  return newest;
}

// Gone, or dead and not reaped yet.
bool IsAlive(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string pid, name, state;
  stat >> pid >> name >> state;
  return !state.empty() && state != "Z" && state != "X";
}

}  // namespace

bool PrivatePostgres::Installed() { return !BinFolder().empty(); }

PrivatePostgres::PrivatePostgres() : bin_(BinFolder()) {
  fs::permissions(dir_.path(), fs::perms::all);
  FORETOKEN_CHECK(Run(AsServer(bin_ + "/initdb -D " + dir_.path() +
                               "/data -A trust -U postgres --no-sync "
                               "--locale=C -E UTF8 >" +
                               dir_.path() + "/initdb.log 2>&1")) == 0);
  Start();
}

PrivatePostgres::~PrivatePostgres() {
  Run(AsServer(bin_ + "/pg_ctl -D " + dir_.path() +
               "/data -m immediate stop >/dev/null 2>&1"));
}

std::string PrivatePostgres::url() const {
  return "host=" + dir_.path() + " user=postgres dbname=postgres";
}

int PrivatePostgres::Run(const std::string& command) const {
  return std::system(command.c_str());
}

std::string PrivatePostgres::AsServer(const std::string& command) const {
  if (geteuid() != 0) return command;
  return "cd / && runuser -u postgres -- sh -c '" + command + "'";
}

void PrivatePostgres::Start(const std::string& options) {
  // Unix socket alone; small, since tests share the machine.
  FORETOKEN_CHECK(
      Run(AsServer(bin_ + "/pg_ctl -D " + dir_.path() + "/data -w -l " +
                   dir_.path() +
                   "/server.log -o \"-c listen_addresses= -c fsync=off "
                   "-c shared_buffers=32MB -k " +
                   dir_.path() + " " + options + "\" start >/dev/null")) == 0);
}

void PrivatePostgres::StopCleanly() {
  FORETOKEN_CHECK(Run(AsServer(bin_ + "/pg_ctl -D " + dir_.path() +
                               "/data -m fast -w stop >/dev/null")) == 0);
}

std::vector<pid_t> PrivatePostgres::Processes() const {
  std::ifstream pid_file(dir_.path() + "/data/postmaster.pid");
  pid_t postmaster = 0;
  pid_file >> postmaster;
  FORETOKEN_CHECK(postmaster > 1);
  const std::string pid = std::to_string(postmaster);
  std::ifstream children_file("/proc/" + pid + "/task/" + pid + "/children");
  std::vector<pid_t> processes = {postmaster};
  for (pid_t child = 0; children_file >> child;) processes.push_back(child);
  return processes;
}

void PrivatePostgres::Pause() {
  for (const pid_t process : Processes()) kill(process, SIGSTOP);
}

void PrivatePostgres::Resume() {
  for (const pid_t process : Processes()) kill(process, SIGCONT);
}

void PrivatePostgres::Kill() {
  const std::vector<pid_t> processes = Processes();
  for (const pid_t process : processes) kill(process, SIGKILL);
  for (const pid_t process : processes) {
    while (IsAlive(process)) usleep(1000);
  }
  // A container's first process may never reap the dead server: its number then
  // looks alive to the next one.
  fs::remove(dir_.path() + "/data/postmaster.pid");
  fs::remove(dir_.path() + "/.s.PGSQL.5432.lock");
}

void PrivatePostgres::CutConnections() {
  Sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
      "WHERE application_name = 'foretoken-crest'");
}

std::string PrivatePostgres::Sql(const std::string& sql) {
  const std::string command = bin_ + "/psql -X -q -A -t -v ON_ERROR_STOP=1 '" +
                              url() + "' -c \"" + sql + "\" 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  FORETOKEN_CHECK(pipe != nullptr);
  std::string output;
  std::array<char, 4096> chunk;
  while (size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    output.append(chunk.data(), n);
  }
  const int status = pclose(pipe);
  if (status != 0) std::fprintf(stderr, "%s\n", output.c_str());
  FORETOKEN_CHECK(status == 0);
  return output;
}

std::string PrivatePostgres::MakeServerFolder(const std::string& name) {
  const std::string path = dir_.File(name);
  FORETOKEN_CHECK(Run(AsServer("mkdir -p " + path)) == 0);
  return path;
}

}  // namespace foretoken::testing
