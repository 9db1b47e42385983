#include "services/gateway/adapters/beast_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <set>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "services/gateway/adapters/http_connection.h"
#include "services/gateway/adapters/tls_sessions.h"

namespace foretoken::gateway {
namespace {

namespace asio = boost::asio;
using beast_server::Connection;
using beast_server::MakeConnection;
using beast_server::Shared;
using beast_server::TlsSessions;

// One thread and its connections.
class Worker {
 public:
  explicit Worker(Shared& shared)
      : shared_(shared), io_(1), work_(io_.get_executor()) {}

  void Start() {
    thread_ = std::thread([this] { io_.run(); });
  }

  // Takes the connected socket `fd`.
  void Add(int fd) {
    asio::post(io_, [this, fd] {
      const std::shared_ptr<Connection> connection =
          MakeConnection(shared_, io_, fd);
      if (connection == nullptr) return;
      connections_.insert(connection);
      connection->Start([this](const std::shared_ptr<Connection>& closed) {
        connections_.erase(closed);
      });
    });
  }

  void CloseIdle() {
    asio::post(io_, [this] {
      for (const auto& connection : Connections()) connection->CloseIdle();
    });
  }

  // Closes all connections and ends the thread.
  void Stop() {
    asio::post(io_, [this] {
      for (const auto& connection : Connections()) connection->Close();
      // All that is left is to drop what the connections had asked for.
      work_.reset();
    });
    if (thread_.joinable()) thread_.join();
  }

 private:
  // A copy: closing a connection changes the set.
  std::vector<std::shared_ptr<Connection>> Connections() const {
    return {connections_.begin(), connections_.end()};
  }

  Shared& shared_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace

class BeastServer::Impl {
 public:
  Impl(const HttpServerOptions& options, HttpHandler& handler,
       HttpServerObserver& observer)
      : shared_(options, handler, observer),
        listener_(options.connection_limits(), options.send_timeout) {
    for (int32_t i = 0; i < options.threads; ++i) {
      workers_.push_back(std::make_unique<Worker>(shared_));
    }
  }
  ~Impl() { Stop(); }

  absl::Status Start(std::vector<net::ReservedAddress> addresses) {
    const HttpServerOptions& options = shared_.options;
    if (!options.tls_cert.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(
          shared_.tls,
          TlsSessions::Load(options.tls_files(), MonotonicClock()));
    }
    for (net::ReservedAddress& address : addresses) {
      FORETOKEN_ASSIGN_OR_RETURN(
          std::string bound, listener_.Bind(std::move(address), [this](int fd) {
            workers_[next_++ % workers_.size()]->Add(fd);
          }));
      addresses_.push_back(std::move(bound));
    }
    for (const auto& worker : workers_) worker->Start();
    listener_.Start();
    return absl::OkStatus();
  }
  void BeginDrain() {
    shared_.draining = true;
    listener_.Stop();
    for (const auto& worker : workers_) worker->CloseIdle();
  }
  void Stop() {
    listener_.Stop();
    if (std::exchange(stopped_, true)) return;
    for (const auto& worker : workers_) worker->Stop();
  }
  const std::vector<std::string>& addresses() const { return addresses_; }
  int64_t active() const { return shared_.active; }
  int64_t lingering() const { return shared_.lingering; }

 private:
  Shared shared_;
  std::vector<std::unique_ptr<Worker>> workers_;
  size_t next_ = 0;  // of the listener's thread
  bool stopped_ = false;
  std::vector<std::string> addresses_;
  net::Listener listener_;  // last: its thread uses the workers
};

BeastServer::BeastServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BeastServer::~BeastServer() = default;

absl::StatusOr<std::unique_ptr<BeastServer>> BeastServer::Start(
    const HttpServerOptions& options, HttpHandler& handler,
    HttpServerObserver& observer, std::vector<net::ReservedAddress> addresses) {
  FORETOKEN_RETURN_IF_ERROR(options.Validate());
  if (addresses.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(addresses,
                               net::ReserveAddresses(options.listen));
  }
  auto impl = std::make_unique<Impl>(options, handler, observer);
  FORETOKEN_RETURN_IF_ERROR(impl->Start(std::move(addresses)));
  return std::unique_ptr<BeastServer>(new BeastServer(std::move(impl)));
}

const std::vector<std::string>& BeastServer::addresses() const {
  return impl_->addresses();
}
int64_t BeastServer::active() const { return impl_->active(); }
int64_t BeastServer::lingering() const { return impl_->lingering(); }
void BeastServer::BeginDrain() { impl_->BeginDrain(); }
void BeastServer::Stop() { impl_->Stop(); }

}  // namespace foretoken::gateway
