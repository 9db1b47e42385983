#include "services/gateway/adapters/client_socket.h"

#include <utility>

namespace foretoken::gateway::beast_server {
namespace {

using boost::system::error_code;

class PlainSocket final : public ClientSocket {
 public:
  explicit PlainSocket(Socket socket) : socket_(std::move(socket)) {}

  void Handshake(std::function<void(const error_code&)> done) override {
    done({});
  }
  void ReadSome(boost::asio::mutable_buffer into, Done done) override {
    socket_.async_read_some(into, std::move(done));
  }
  void WriteSome(boost::asio::const_buffer from, Done done) override {
    socket_.async_write_some(from, std::move(done));
  }
  void ShutdownSend() override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  void Close(bool /*whole*/) override {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
  }
  int plain_fd() override { return socket_.native_handle(); }

 private:
  Socket socket_;
};

}  // namespace

std::unique_ptr<ClientSocket> MakePlainSocket(Socket socket) {
  return std::make_unique<PlainSocket>(std::move(socket));
}

}  // namespace foretoken::gateway::beast_server
