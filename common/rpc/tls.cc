#include "common/rpc/tls.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace foretoken::rpc {
namespace {

constexpr uint64_t kMaxPemBytes = uint64_t{1} << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Cert = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

// The BIO refers to `pem` and copies nothing.
Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// An encrypted key is refused; the default would ask on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

// The first certificate of the file.
absl::StatusOr<Cert> ReadCert(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string pem,
                             ReadFile(path, kMaxPemBytes));
  Cert cert(PEM_read_bio_X509(Open(pem).get(), nullptr, NoPassword, nullptr));
  if (cert == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": want a PEM certificate"));
  }
  return cert;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string pem,
                             ReadFile(path, kMaxPemBytes));
  Key key(
      PEM_read_bio_PrivateKey(Open(pem).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": want a PEM private key without a password"));
  }
  return key;
}

std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider> Watch(
    const TlsFiles& files) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key, files.cert, files.ca, kTlsReloadSeconds);
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  // Checked here, since gRPC's file watcher would only log a bad file: the
  // server would start and fail every handshake.
  if (!files.ca.empty()) {
    FORETOKEN_RETURN_IF_ERROR(ReadCert(files.ca).status());
  }
  if (files.cert.empty()) return absl::OkStatus();
  FORETOKEN_ASSIGN_OR_RETURN(const Cert cert, ReadCert(files.cert));
  FORETOKEN_ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  if (X509_check_private_key(cert.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.key, ": not the key of ", files.cert));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsForServer(
    const TlsFiles& files) {
  FORETOKEN_RETURN_IF_ERROR(CheckTlsFiles(files));
  grpc::experimental::TlsServerCredentialsOptions options(Watch(files));
  options.watch_identity_key_cert_pairs();
  if (!files.ca.empty()) options.watch_root_certs();
  options.set_cert_request_type(
      files.ca.empty()
          ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsForClient(
    const TlsFiles& files) {
  FORETOKEN_RETURN_IF_ERROR(CheckTlsFiles(files));
  // The peer's name is checked by default.
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  options.watch_root_certs();
  if (!files.cert.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace foretoken::rpc
