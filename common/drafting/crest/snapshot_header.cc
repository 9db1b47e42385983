#include "common/drafting/crest/snapshot_header.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "xxhash.h"

namespace foretoken {
namespace {

constexpr size_t kDigestBytes = 8;

}  // namespace

void SealHeader(std::string& header) {
  AppendLittleEndian(XXH3_64bits(header.data(), header.size()), header);
}

absl::Status CheckHeader(absl::Span<const uint8_t> bytes, size_t want,
                         absl::string_view magic, absl::string_view name,
                         absl::string_view file) {
  if (bytes.size() < want) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", bytes.size(), " bytes, want ", want));
  }
  if (!std::equal(magic.begin(), magic.end(), bytes.begin())) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not ", file));
  }
  // The checksum covers everything before it, the magic included.
  const size_t covered = want - kDigestBytes;
  if (FromLittleEndian(bytes.subspan(covered, kDigestBytes)) !=
      XXH3_64bits(bytes.data(), covered)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": checksum differs"));
  }
  return absl::OkStatus();
}

std::string PackTokens(absl::Span<const TokenId> tokens, int width) {
  std::string out;
  out.reserve(tokens.size() * static_cast<size_t>(width));
  for (const TokenId token : tokens) {
    for (int i = 0; i < width; ++i) {
      out.push_back(static_cast<char>(token >> (8 * i)));
    }
  }
  return out;
}

std::vector<TokenId> UnpackTokens(absl::Span<const uint8_t> bytes, int width) {
  const size_t step = static_cast<size_t>(width);
  std::vector<TokenId> tokens(bytes.size() / step);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] =
        static_cast<TokenId>(FromLittleEndian(bytes.subspan(i * step, step)));
  }
  return tokens;
}

}  // namespace foretoken
