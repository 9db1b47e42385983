// An HTTP server for tests, with a handler that keeps what it is asked; what it
// answers comes when the test says so.
#ifndef FORETOKEN_TESTS_INTEGRATION_HTTP_SERVER_HARNESS_H_
#define FORETOKEN_TESTS_INTEGRATION_HTTP_SERVER_HARNESS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "services/gateway/adapters/beast_server.h"
#include "tests/integration/certificates.h"
#include "tests/integration/http_client.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::gateway {

// Keeps requests, without what they hold of the memory for bodies, and exchanges.
class KeepingHandler final : public HttpHandler {
 public:
  void Handle(HttpRequest request,
              std::shared_ptr<HttpExchange> exchange) override {
    absl::MutexLock lock(&mu_);
    request.memory.Release();
    requests_.push_back(std::move(request));
    exchanges_.push_back(std::move(exchange));
  }

  std::optional<std::string> BodyOwner(const HttpRequest& head) const override {
    if (known != nullptr && !known(head)) return std::nullopt;
    return head.peer;
  }
  HttpHeaders HeadersOfRefusal(const HttpRequest& head) const override {
    return {{"Origin-Was", std::string(head.Header("Origin"))}};
  }

  std::function<bool(const HttpRequest&)> known;  // null: all

  size_t size() const {
    absl::MutexLock lock(&mu_);
    return requests_.size();
  }
  std::string body(size_t i) const {
    absl::MutexLock lock(&mu_);
    return requests_.at(i).body;
  }
  std::string path(size_t i) const {
    absl::MutexLock lock(&mu_);
    return requests_.at(i).path;
  }
  std::string header(size_t i, absl::string_view name) const {
    absl::MutexLock lock(&mu_);
    return std::string(requests_.at(i).Header(name));
  }
  std::shared_ptr<HttpExchange> exchange(size_t i) const {
    absl::MutexLock lock(&mu_);
    return exchanges_.at(i);
  }

 private:
  mutable absl::Mutex mu_;
  std::vector<HttpRequest> requests_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<HttpExchange>> exchanges_ ABSL_GUARDED_BY(mu_);
};

struct CountingServerObserver final : public HttpServerObserver {
  void OnConnections(int change) override { connections += change; }
  std::atomic<int> connections{0};
};

struct FlagObserver final : public HttpObserver {
  void OnRoom() override {}
  void OnGone() override { gone = true; }
  std::atomic<bool> gone{false};
};

inline std::string Post(const std::string& body,
                        const std::string& headers = "") {
  return absl::StrCat(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nContent-Length: ",
      body.size(), "\r\n", headers, "\r\n", body);
}

class HttpServerHarness {
 protected:
  HttpServerHarness() { options_.listen = {"127.0.0.1:0"}; }

  void UseTls() {
    files_ = testing::MakeCertificates(dir_, "root");
    options_.tls_cert = files_.cert;
    options_.tls_key = files_.key;
    tls_.emplace();
    tls_->ca = files_.ca;
  }
  void Start() { Start(handler_); }
  void Start(HttpHandler& handler) {
    auto server = BeastServer::Start(options_, handler, observer_);
    FORETOKEN_ASSERT_OK(server);
    server_ = *std::move(server);
  }
  const std::string& address() const { return server_->addresses().at(0); }
  // A client that has been let in.
  testing::HttpClient Connect(int receive_bytes = 0) const {
    testing::HttpClient client =
        tls_.has_value() ? testing::HttpClient(address(), *tls_, receive_bytes)
                         : testing::HttpClient(address(), receive_bytes);
    EXPECT_TRUE(client.Handshake());
    return client;
  }
  // Waits until the handler has that many requests.
  bool Handled(size_t requests) {
    return testing::Eventually([&] { return handler_.size() == requests; });
  }

  const testing::TempDir dir_;
  testing::Certificates files_;
  std::optional<testing::ClientTls> tls_;  // of clients; null: plain
  HttpServerOptions options_;
  KeepingHandler handler_;
  CountingServerObserver observer_;
  std::unique_ptr<BeastServer> server_;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_TESTS_INTEGRATION_HTTP_SERVER_HARNESS_H_
