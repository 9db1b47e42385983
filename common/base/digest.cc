#include "common/base/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "absl/strings/escaping.h"
#include "common/base/check.h"

namespace foretoken {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

// EVP is OpenSSL's supported interface; it picks SHA-NI where the CPU has it.
Sha256::Sha256() : context_(std::make_unique<Context>()) {
  FORETOKEN_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

Sha256& Sha256::Update(absl::Span<const uint8_t> bytes) {
  FORETOKEN_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) ==
                  1);
  return *this;
}

Sha256& Sha256::Update(absl::string_view text) {
  return Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  unsigned size = 0;
  FORETOKEN_CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), &size) == 1);
  return digest;
}

Sha256Digest HmacSha256(absl::string_view key, absl::string_view message) {
  Sha256Digest digest;
  unsigned size = 0;
  FORETOKEN_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                       reinterpret_cast<const unsigned char*>(message.data()),
                       message.size(), digest.data(), &size) != nullptr);
  return digest;
}

std::string HexDigest(const Sha256Digest& digest) {
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace foretoken
