#include "services/gateway/adapters/tls_socket.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <limits>
#include <utility>

#include "services/gateway/adapters/client_records.h"

namespace foretoken::gateway::beast_server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// --- The socket as OpenSSL sees it -------------------------------------------
// OpenSSL's own BIO for sockets raises SIGPIPE.

struct Transport {
  int fd;
  ClientRecords records = {};  // received
};
Transport& TransportOf(BIO* bio) {
  return *static_cast<Transport*>(BIO_get_data(bio));
}

int Finish(BIO* bio, ssize_t result, int retry_flag) {
  BIO_clear_retry_flags(bio);
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_flags(bio, retry_flag | BIO_FLAGS_SHOULD_RETRY);
  }
  return static_cast<int>(result);
}
int Write(BIO* bio, const char* bytes, int size) {
  const ssize_t sent =
      send(TransportOf(bio).fd, bytes, static_cast<size_t>(size),
           MSG_DONTWAIT | MSG_NOSIGNAL);
  return Finish(bio, sent, BIO_FLAGS_WRITE);
}
int Read(BIO* bio, char* into, int size) {
  Transport& from = TransportOf(bio);
  const ssize_t got =
      recv(from.fd, into, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  if (got > 0 && !from.records.Follow({into, static_cast<size_t>(got)})) {
    BIO_clear_retry_flags(bio);
    return -1;
  }
  return Finish(bio, got, BIO_FLAGS_READ);
}
long Control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) {
    return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  }
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Lives as long as the process.
BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK,
                                    "client socket");
    BIO_meth_set_write(made, Write);
    BIO_meth_set_read(made, Read);
    BIO_meth_set_ctrl(made, Control);
    return made;
  }();
  return method;
}

class TlsSocket final : public ClientSocket {
 public:
  TlsSocket(Socket socket, Ssl ssl, std::string refusal)
      : socket_(std::move(socket)),
        transport_{socket_.native_handle()},
        ssl_(std::move(ssl)),
        refusal_(std::move(refusal)) {}

  bool Init() {
    BIO* bio = BIO_new(SocketMethod());
    if (bio == nullptr) return false;
    BIO_set_data(bio, &transport_);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    return true;
  }

  void Handshake(std::function<void(const error_code&)> done) override {
    Run([this] { return SSL_do_handshake(ssl_.get()); },
        [this, done = std::move(done)](const error_code& error, size_t) {
          ready_ = !error;
          transport_.records.OnHandshakeDone();
          done(error);
        });
  }
  void ReadSome(asio::mutable_buffer into, Done done) override {
    Run([this,
         into] { return SSL_read(ssl_.get(), into.data(), Size(into.size())); },
        std::move(done));
  }
  void WriteSome(asio::const_buffer from, Done done) override {
    writing_ = true;
    Run(
        [this, from] {
          return SSL_write(ssl_.get(), from.data(), Size(from.size()));
        },
        [this, done = std::move(done)](const error_code& error, size_t bytes) {
          writing_ = false;
          done(error, bytes);
        });
  }

  void ShutdownSend() override {
    Notify();
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
  }
  void Close(bool whole) override {
    if (whole) Notify();
    ready_ = false;
    error_code ignored;
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
  }
  int plain_fd() override { return -1; }

 private:
  static int Size(size_t bytes) {
    return static_cast<int>(
        std::min<size_t>(bytes, std::numeric_limits<int>::max()));
  }

  // Calls `step`, a function of OpenSSL, until it has an answer.
  template <typename Step>
  void Run(Step step, Done done) {
    if (!socket_.is_open()) {
      Post(asio::error::operation_aborted, 0, std::move(done));
      return;
    }
    ERR_clear_error();
    const int result = step();
    if (result > 0) {
      Post({}, static_cast<size_t>(result), std::move(done));
      return;
    }
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        Wait(Socket::wait_read, std::move(step), std::move(done));
        break;
      case SSL_ERROR_WANT_WRITE:
        Wait(Socket::wait_write, std::move(step), std::move(done));
        break;
      case SSL_ERROR_ZERO_RETURN:
        Post(asio::error::eof, 0, std::move(done));
        break;
      default:
        ready_ = false;
        if (transport_.records.http()) Refuse();
        Post(asio::error::connection_aborted, 0, std::move(done));
    }
  }
  template <typename Step>
  void Wait(Socket::wait_type event, Step step, Done done) {
    socket_.async_wait(event,
                       [this, step = std::move(step),
                        done = std::move(done)](const error_code& error) {
                         if (error) {
                           done(error, 0);
                         } else {
                           Run(std::move(step), std::move(done));
                         }
                       });
  }
  void Post(error_code error, size_t bytes, Done done) {
    asio::post(socket_.get_executor(),
               [error, bytes, done = std::move(done)] { done(error, bytes); });
  }

  // As far as the kernel takes it. A record that is half written cannot be
  // followed by anything else.
  void Notify() {
    if (!ready_ || writing_) return;
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
  }
  // Answers a plain request; nothing has been sent to this client before.
  void Refuse() {
    send(transport_.fd, refusal_.data(), refusal_.size(),
         MSG_DONTWAIT | MSG_NOSIGNAL);
    // Closing with bytes unread would destroy the answer.
    char dropped[4096];
    for (int i = 0; i < 16; ++i) {
      if (recv(transport_.fd, dropped, sizeof(dropped), MSG_DONTWAIT) <= 0) {
        break;
      }
    }
  }

  Socket socket_;
  Transport transport_;  // socket_, for the BIO
  const Ssl ssl_;
  const std::string refusal_;
  bool ready_ = false;  // after the handshake, before an error
  bool writing_ = false;
};

}  // namespace

std::unique_ptr<ClientSocket> MakeTlsSocket(Socket socket, Ssl ssl,
                                            std::string refusal) {
  if (ssl == nullptr) return nullptr;
  auto tls = std::make_unique<TlsSocket>(std::move(socket), std::move(ssl),
                                         std::move(refusal));
  if (!tls->Init()) return nullptr;
  return tls;
}

}  // namespace foretoken::gateway::beast_server
