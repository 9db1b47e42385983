#include "tests/integration/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "common/base/check.h"

namespace foretoken::testing {
namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(X509_EXTENSION* e) const { X509_EXTENSION_free(e); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Cert = std::unique_ptr<X509, Free>;

void AddExtension(X509* cert, int nid, const char* value) {
  const std::unique_ptr<X509_EXTENSION, Free> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, nid, value));
  FORETOKEN_CHECK(extension != nullptr);
  FORETOKEN_CHECK(X509_add_ext(cert, extension.get(), -1) == 1);
}

// Signed by `issuer_key`; its own issuer where `issuer` is nullptr, else for
// `hosts`.
Cert MakeCert(const std::string& common_name, EVP_PKEY* key, X509* issuer,
              EVP_PKEY* issuer_key, const std::string& hosts) {
  static long serial = 1;
  Cert cert(X509_new());
  X509_set_version(cert.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), 3600 * 24);
  X509_set_pubkey(cert.get(), key);
  X509_NAME* name = X509_get_subject_name(cert.get());
  X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
  X509_set_issuer_name(
      cert.get(), issuer == nullptr ? name : X509_get_subject_name(issuer));
  if (issuer == nullptr) {
    AddExtension(cert.get(), NID_basic_constraints, "critical,CA:TRUE");
  } else {
    AddExtension(cert.get(), NID_subject_alt_name, hosts.c_str());
  }
  FORETOKEN_CHECK(X509_sign(cert.get(), issuer_key, EVP_sha256()) > 0);
  return cert;
}

template <typename Write>
std::string Pem(Write write) {
  const std::unique_ptr<BIO, Free> bio(BIO_new(BIO_s_mem()));
  FORETOKEN_CHECK(write(bio.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

std::string PemOf(X509* cert) {
  return Pem([cert](BIO* bio) { return PEM_write_bio_X509(bio, cert); });
}

}  // namespace

Certificates MakeCertificates(const TempDir& dir, const std::string& name,
                              const std::string& hosts) {
  const Key ca_key(EVP_EC_gen("P-256"));
  const Key key(EVP_EC_gen("P-256"));
  const Cert ca = MakeCert(name, ca_key.get(), nullptr, ca_key.get(), "");
  const Cert cert =
      MakeCert("foretoken", key.get(), ca.get(), ca_key.get(), hosts);
  Certificates files;
  files.ca = dir.Write(name + "-ca.pem", PemOf(ca.get()));
  files.cert = dir.Write(name + "-cert.pem", PemOf(cert.get()));
  files.key =
      dir.Write(name + "-key.pem", Pem([&](BIO* bio) {
                  return PEM_write_bio_PrivateKey(bio, key.get(), nullptr,
                                                  nullptr, 0, nullptr, nullptr);
                }));
  return files;
}

}  // namespace foretoken::testing
