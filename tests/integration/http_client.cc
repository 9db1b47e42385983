#include "tests/integration/http_client.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "absl/strings/match.h"
#include "common/base/check.h"

namespace foretoken::testing {

HttpClient::HttpClient(const std::string& address, const ClientTls& tls,
                       int receive_bytes)
    : raw_(address, receive_bytes),
      context_(SSL_CTX_new(TLS_client_method())),
      ssl_(SSL_new(context_.get())) {
  SSL_set_connect_state(ssl_.get());
  // Old versions need weaker signatures than OpenSSL allows by default.
  if (tls.max_version < TLS1_2_VERSION) SSL_set_security_level(ssl_.get(), 0);
  SSL_set_min_proto_version(ssl_.get(), TLS1_VERSION);
  SSL_set_max_proto_version(ssl_.get(), tls.max_version);
  if (!tls.ciphers.empty()) {
    FORETOKEN_CHECK(SSL_set_cipher_list(ssl_.get(), tls.ciphers.c_str()) == 1);
  }
  if (!tls.ca.empty()) {
    FORETOKEN_CHECK(SSL_CTX_load_verify_file(context_.get(), tls.ca.c_str()) ==
                    1);
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
    FORETOKEN_CHECK(SSL_set1_host(ssl_.get(), "localhost") == 1);
  }
  if (!tls.cert.empty()) {
    FORETOKEN_CHECK(SSL_use_certificate_file(ssl_.get(), tls.cert.c_str(),
                                             SSL_FILETYPE_PEM) == 1);
    FORETOKEN_CHECK(SSL_use_PrivateKey_file(ssl_.get(), tls.key.c_str(),
                                            SSL_FILETYPE_PEM) == 1);
  }
  if (!tls.protocols.empty()) {
    SSL_set_alpn_protos(
        ssl_.get(),
        reinterpret_cast<const unsigned char*>(tls.protocols.data()),
        static_cast<unsigned int>(tls.protocols.size()));
  }
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
}

bool HttpClient::Flush() const {
  BIO* out = SSL_get_wbio(ssl_.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(out, &bytes);
  const bool sent = size == 0 || raw_.Say({bytes, static_cast<size_t>(size)});
  BIO_reset(out);
  return sent;
}

template <typename Step>
int HttpClient::Run(Step step) const {
  while (true) {
    ERR_clear_error();
    const int result = step();
    const int error = result > 0 ? 0 : SSL_get_error(ssl_.get(), result);
    if (!Flush() || error != SSL_ERROR_WANT_READ) return result;
    const std::string more = raw_.ReadSome();
    if (more.empty()) return -1;
    BIO_write(SSL_get_rbio(ssl_.get()), more.data(),
              static_cast<int>(more.size()));
  }
}

bool HttpClient::Handshake() const {
  return ssl_ == nullptr ||
         Run([this] { return SSL_do_handshake(ssl_.get()); }) == 1;
}

std::string HttpClient::Hello() const {
  SSL_do_handshake(ssl_.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(SSL_get_wbio(ssl_.get()), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

bool HttpClient::Say(absl::string_view bytes) const {
  if (ssl_ == nullptr) return raw_.Say(bytes);
  return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) >
             0 &&
         Flush();
}

std::string HttpClient::ReadUntil(absl::string_view text) const {
  if (ssl_ == nullptr) return raw_.ReadUntil(text);
  std::string all;
  char byte = 0;
  while (!absl::EndsWith(all, text) &&
         Run([&] { return SSL_read(ssl_.get(), &byte, 1); }) == 1) {
    all.push_back(byte);
  }
  return all;
}

std::string HttpClient::ReadSome() const {
  if (ssl_ == nullptr) return raw_.ReadSome();
  std::string some(size_t{16} << 10, '\0');
  const int n = Run([&] {
    return SSL_read(ssl_.get(), some.data(), static_cast<int>(some.size()));
  });
  some.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return some;
}

std::string HttpClient::ReadAll() const {
  std::string all;
  for (std::string some = ReadSome(); !some.empty(); some = ReadSome()) {
    all += some;
  }
  return all;
}

bool HttpClient::ToldTheEnd() const {
  return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

void HttpClient::TellTheEnd() const {
  SSL_shutdown(ssl_.get());
  Flush();
}

bool HttpClient::ChangeKeys() const {
  return SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED) == 1 &&
         SSL_do_handshake(ssl_.get()) == 1 && Flush();
}

}  // namespace foretoken::testing
