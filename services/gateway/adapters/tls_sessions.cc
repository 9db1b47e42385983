#include "services/gateway/adapters/tls_sessions.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"

namespace foretoken::gateway::beast_server {
namespace {

// For TLS 1.2: forward secrecy and AEAD only. TLS 1.3 has no others.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
// A client's chain of certificates; OpenSSL's default is 100 KiB a handshake.
constexpr long kMaxChainBytes = 16 << 10;
constexpr unsigned char kProtocols[] = "\x08http/1.1";  // ALPN's form

// A client that speaks none of these, such as one of gRPC, is told so.
int SelectProtocol(SSL*, const unsigned char** out, unsigned char* size,
                   const unsigned char* offered, unsigned int offered_size,
                   void*) {
  // OpenSSL takes `out` by a pointer to what it may not change.
  unsigned char* selected = nullptr;
  if (SSL_select_next_proto(&selected, size, kProtocols, sizeof(kProtocols) - 1,
                            offered, offered_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = selected;
  return SSL_TLSEXT_ERR_OK;
}

// The default would ask on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

absl::Status LastError(const std::string& path) {
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", text));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsSessions>> TlsSessions::Load(
    const rpc::TlsFiles& files, const Clock& clock) {
  std::unique_ptr<TlsSessions> sessions(new TlsSessions(files, clock));
  FORETOKEN_RETURN_IF_ERROR(sessions->context_.Load());
  if (sessions->roots_.has_value()) {
    FORETOKEN_RETURN_IF_ERROR(sessions->roots_->Load());
  }
  sessions->Update();
  sessions->watcher_ = std::thread([raw = sessions.get()] { raw->Watch(); });
  return sessions;
}

TlsSessions::~TlsSessions() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (watcher_.joinable()) watcher_.join();
}

void TlsSessions::Watch() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(mu_, absl::Condition(&stop_), kReloadInterval)) return;
    }
    Update();
  }
}

void TlsSessions::Update() {
  std::shared_ptr<const Context> context = context_.Get();
  std::shared_ptr<const Roots> roots;
  if (roots_.has_value()) roots = roots_->Get();
  absl::MutexLock lock(&mu_);
  current_context_ = std::move(context);
  current_roots_ = std::move(roots);
}

TlsSessions::TlsSessions(const rpc::TlsFiles& files, const Clock& clock)
    : context_(
          files.cert,
          [files](const std::string&) { return ReadContext(files); }, clock) {
  if (!files.ca.empty()) roots_.emplace(files.ca, ReadRoots, clock);
}

absl::StatusOr<TlsSessions::Context> TlsSessions::ReadContext(
    const rpc::TlsFiles& files) {
  FORETOKEN_RETURN_IF_ERROR(rpc::CheckTlsFiles({files.cert, files.key, ""}));
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr ||
      SSL_CTX_set_cipher_list(context.get(), kCiphers) != 1) {
    return LastError(files.cert);
  }
  SSL_CTX_set_default_passwd_cb(context.get(), NoPassword);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_NO_COMPRESSION |
                                         SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  // A record may be sent in parts, from wherever the rest of the answer lies.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  // Records without data do not hold the thread of other connections.
  SSL_CTX_clear_mode(context.get(), SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_alpn_select_cb(context.get(), SelectProtocol, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str()) !=
      1) {
    return LastError(files.cert);
  }
  // The files may have changed since they were checked.
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(),
                                  SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return LastError(files.key);
  }
  return context;
}

absl::StatusOr<TlsSessions::Roots> TlsSessions::ReadRoots(
    const std::string& path) {
  FORETOKEN_RETURN_IF_ERROR(rpc::CheckTlsFiles({"", "", path}));
  ERR_clear_error();
  Roots roots(X509_STORE_new());
  if (roots == nullptr ||
      X509_STORE_load_file(roots.get(), path.c_str()) != 1) {
    return LastError(path);
  }
  return roots;
}

Ssl TlsSessions::New() {
  std::shared_ptr<const Context> context;
  std::shared_ptr<const Roots> roots;
  {
    absl::MutexLock lock(&mu_);
    context = current_context_;
    roots = current_roots_;
  }
  Ssl ssl(SSL_new(context->get()));
  if (ssl == nullptr) return nullptr;
  SSL_set_accept_state(ssl.get());
  if (roots != nullptr) {
    if (SSL_set1_verify_cert_store(ssl.get(), roots->get()) != 1) {
      return nullptr;
    }
    SSL_set_verify(ssl.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                   nullptr);
    SSL_set_max_cert_list(ssl.get(), kMaxChainBytes);
  }
  return ssl;
}

}  // namespace foretoken::gateway::beast_server
