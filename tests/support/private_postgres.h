// A PostgreSQL server of a test's own: real, on a Unix socket, gone with it.
//
// As root the server runs as the user `postgres`, which it insists on.
#ifndef FORETOKEN_TESTS_SUPPORT_PRIVATE_POSTGRES_H_
#define FORETOKEN_TESTS_SUPPORT_PRIVATE_POSTGRES_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace foretoken::testing {

class PrivatePostgres {
 public:
  // True where the server's programs are installed.
  static bool Installed();

  // Makes a cluster and starts it; aborts the test program where that fails.
  PrivatePostgres();
  ~PrivatePostgres();
  PrivatePostgres(const PrivatePostgres&) = delete;
  PrivatePostgres& operator=(const PrivatePostgres&) = delete;

  // For FORETOKEN_POSTGRES_URL.
  std::string url() const;

  // `options`: settings for the server, as -c name=value.
  void Start(const std::string& options = "");
  void StopCleanly();
  // SIGKILL to every process of the server: a crash.
  void Kill();
  void Pause();  // SIGSTOP to every process of the server
  void Resume();
  // Ends all client connections, as a cut network would.
  void CutConnections();

  // Runs SQL through psql; its output, or an abort.
  std::string Sql(const std::string& sql);

  // A folder that the server may use: for a tablespace.
  std::string MakeServerFolder(const std::string& name);

 private:
  // The server's first process, then its others.
  std::vector<pid_t> Processes() const;
  int Run(const std::string& command) const;
  std::string AsServer(const std::string& command) const;

  TempDir dir_;
  std::string bin_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_PRIVATE_POSTGRES_H_
