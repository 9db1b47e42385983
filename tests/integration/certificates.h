// Throw-away certificates for TLS tests, made with libcrypto.
#ifndef FORETOKEN_TESTS_INTEGRATION_CERTIFICATES_H_
#define FORETOKEN_TESTS_INTEGRATION_CERTIFICATES_H_

#include <string>

#include "tests/support/temp_dir.h"

namespace foretoken::testing {

// PEM files in `dir`: a root of the given name, and a certificate that it
// signed for these hosts.
struct Certificates {
  std::string ca;
  std::string cert;
  std::string key;
};
Certificates MakeCertificates(
    const TempDir& dir, const std::string& name,
    const std::string& hosts = "DNS:localhost,IP:127.0.0.1");

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_INTEGRATION_CERTIFICATES_H_
