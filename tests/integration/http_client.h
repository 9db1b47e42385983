// HttpClient: a client of an HTTP server that says only what it is told to,
// plain or in TLS.
#ifndef FORETOKEN_TESTS_INTEGRATION_HTTP_CLIENT_H_
#define FORETOKEN_TESTS_INTEGRATION_HTTP_CLIENT_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "tests/support/raw_connection.h"

namespace foretoken::testing {

struct ClientTls {
  std::string ca;  // roots that the server's certificate, for localhost, needs
  std::string cert, key;  // its own certificate; empty: none
  int max_version = TLS1_3_VERSION;
  std::string ciphers;    // of TLS 1.2; empty: OpenSSL's own
  std::string protocols;  // offered by ALPN, in its form
};

class HttpClient {
 public:
  // Plain. `receive_bytes`: as of RawConnection.
  explicit HttpClient(const std::string& address, int receive_bytes = 0)
      : raw_(address, receive_bytes) {}
  // Does not begin the handshake.
  HttpClient(const std::string& address, const ClientTls& tls,
             int receive_bytes = 0);

  // The rest begins with it. False if either side refuses the other; with TLS
  // 1.3 a server that refuses the client's certificate does so later.
  bool Handshake() const;
  // Its first message.
  std::string Hello() const;

  // As of RawConnection.
  bool Say(absl::string_view bytes) const;
  std::string ReadUntil(absl::string_view text) const;
  std::string ReadSome() const;
  std::string ReadAll() const;
  bool Closed() const { return raw_.Closed(); }

  // The server has said that nothing more comes. Of TLS, after ReadAll.
  bool ToldTheEnd() const;
  // Says that nothing more comes.
  void TellTheEnd() const;
  // Changes its keys, and asks the server to do the same. Of TLS 1.3.
  bool ChangeKeys() const;

  const RawConnection& raw() const { return raw_; }
  SSL* ssl() const { return ssl_.get(); }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };

  // Calls `step`, a function of OpenSSL, until it has an answer.
  template <typename Step>
  int Run(Step step) const;
  // Sends what OpenSSL has written.
  bool Flush() const;

  RawConnection raw_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;  // null: plain
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_HTTP_CLIENT_H_
