// A Redis server of a test's own: real, on a Unix socket, gone with it.
#ifndef FORETOKEN_TESTS_SUPPORT_PRIVATE_REDIS_H_
#define FORETOKEN_TESTS_SUPPORT_PRIVATE_REDIS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace foretoken::testing {

class PrivateRedis {
 public:
  // True where the server's programs are installed.
  static bool Installed();

  // `password`: what clients must say, if not empty. Does not start it.
  explicit PrivateRedis(std::string password = "");
  ~PrivateRedis();
  PrivateRedis(const PrivateRedis&) = delete;
  PrivateRedis& operator=(const PrivateRedis&) = delete;

  // "unix:///...", with the password where there is one.
  std::string url() const;
  std::string socket() const { return dir_.File("redis.sock"); }

  // Starts it, empty, and waits until it answers; aborts the test program
  // where that fails.
  void Start();
  // SIGKILL, and waits for the end.
  void Kill();
  void Pause();  // SIGSTOP
  void Resume();

  // Runs one command through redis-cli; its output without the last newline,
  // or an abort.
  std::string Command(const std::vector<std::string>& arguments) const;

 private:
  const std::string password_;
  TempDir dir_;
  pid_t pid_ = -1;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_PRIVATE_REDIS_H_
