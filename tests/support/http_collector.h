// HttpCollector: a small HTTP server that keeps the bodies that it is sent.
#ifndef FORETOKEN_TESTS_SUPPORT_HTTP_COLLECTOR_H_
#define FORETOKEN_TESTS_SUPPORT_HTTP_COLLECTOR_H_

#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::testing {

// Thread-safe.
class HttpCollector {
 public:
  // Answers with `status`; 0: accepts connections and never answers.
  explicit HttpCollector(int status = 200);
  ~HttpCollector();

  int port() const { return port_; }
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }
  void SetStatus(int status) ABSL_LOCKS_EXCLUDED(mu_);
  // Request lines and bodies so far.
  std::vector<std::string> lines() const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::string> bodies() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Main();
  void Serve(int fd);

  int listener_ = -1;
  int port_ = 0;
  mutable absl::Mutex mu_;
  int status_ ABSL_GUARDED_BY(mu_);
  std::vector<int> silent_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> bodies_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_HTTP_COLLECTOR_H_
