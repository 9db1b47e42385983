// TlsSessions: the TLS of a listener: certificate, key and the roots of its
// clients, read again when they change.
//
// A thread of their own looks at the files once a second, because reading them
// may take long: connections wait for none of it. New connections use what was
// read last; connections that exist stay. A pair that does not match, or a file
// that cannot be read, leaves what was read before. TLS 1.2 or 1.3, HTTP/1.1 by
// ALPN. Sessions are not resumed: a client whose root is gone would otherwise
// come in by an old one. Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_TLS_SESSIONS_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_TLS_SESSIONS_H_

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/reloaded_file.h"
#include "common/rpc/tls.h"

namespace foretoken::gateway::beast_server {

struct FreeTls {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
};
using Ssl = std::unique_ptr<SSL, FreeTls>;

class TlsSessions {
 public:
  // `files.cert` and `files.key` are required; with `files.ca`, clients need a
  // certificate that it signed. Errors are those of rpc::CheckTlsFiles.
  static absl::StatusOr<std::unique_ptr<TlsSessions>> Load(
      const rpc::TlsFiles& files, const Clock& clock);
  ~TlsSessions();

  // The server's side of a new connection, without its socket. Null: there is
  // no memory for it.
  Ssl New();

 private:
  using Context = std::unique_ptr<SSL_CTX, FreeTls>;
  using Roots = std::unique_ptr<X509_STORE, FreeTls>;

  TlsSessions(const rpc::TlsFiles& files, const Clock& clock);
  static absl::StatusOr<Context> ReadContext(const rpc::TlsFiles& files);
  static absl::StatusOr<Roots> ReadRoots(const std::string& path);
  void Watch() ABSL_LOCKS_EXCLUDED(mu_);
  void Update() ABSL_LOCKS_EXCLUDED(mu_);

  // Asked by one thread at a time: at the start, then by the watcher.
  ReloadedFile<Context> context_;
  std::optional<ReloadedFile<Roots>> roots_;

  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<const Context> current_context_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Roots> current_roots_ ABSL_GUARDED_BY(mu_);  // or null
  std::thread watcher_;  // last: uses all of the above
};

}  // namespace foretoken::gateway::beast_server

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_TLS_SESSIONS_H_
