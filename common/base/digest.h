// SHA-256, for fingerprints of weights, tokenizers and files, and HMAC-SHA256
// (libcrypto).
#ifndef FORETOKEN_COMMON_BASE_DIGEST_H_
#define FORETOKEN_COMMON_BASE_DIGEST_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace foretoken {

using Sha256Digest = std::array<uint8_t, 32>;

// Owned by one thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256& Update(absl::Span<const uint8_t> bytes);
  Sha256& Update(absl::string_view text);
  // Ends the computation. The object must not be used afterwards.
  Sha256Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// RFC 2104.
Sha256Digest HmacSha256(absl::string_view key, absl::string_view message);

std::string HexDigest(const Sha256Digest& digest);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_DIGEST_H_
