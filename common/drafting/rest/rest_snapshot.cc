#include "common/drafting/rest/rest_snapshot.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/range_errors.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "xxhash.h"

namespace foretoken {
namespace {

constexpr char kMagic[] = "FTREST01";  // the 8 bytes without the zero
constexpr size_t kMagicBytes = 8;
constexpr size_t kDigestBytes = 8;

// Visits the fields in file order. Any change of them changes the format, whose
// number is part of kMagic.
template <typename Meta, typename Visit>
void VisitFields(Meta& meta, Visit&& visit) {
  for (auto& byte : meta.tokenizer_fingerprint) visit(byte);
  visit(meta.vocab_size);
  visit(meta.documents);
  visit(meta.tokens);
  visit(meta.digest);
}

std::string Encode(const RestMeta& meta) {
  std::string out(kMagic, kMagicBytes);
  VisitFields(meta, [&](const auto& field) { AppendLittleEndian(field, out); });
  AppendLittleEndian(XXH3_64bits(out.data(), out.size()), out);
  return out;
}

}  // namespace

size_t RestMetaBytes() {
  static const size_t bytes = Encode(RestMeta()).size();
  return bytes;
}

uint64_t RestMeta::file_bytes() const {
  return RestMetaBytes() + tokens * static_cast<uint64_t>(token_bytes());
}

absl::StatusOr<RestMeta> DecodeRestMeta(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < RestMetaBytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "REST header: ", bytes.size(), " bytes, want ", RestMetaBytes()));
  }
  if (!std::equal(kMagic, kMagic + kMagicBytes, bytes.begin())) {
    return absl::InvalidArgumentError(
        "REST header: not a REST snapshot of format 1");
  }
  // The checksum covers everything before it, the magic included.
  const size_t covered = RestMetaBytes() - kDigestBytes;
  if (FromLittleEndian(bytes.subspan(covered, kDigestBytes)) !=
      XXH3_64bits(bytes.data(), covered)) {
    return absl::InvalidArgumentError("REST header: checksum differs");
  }
  RestMeta meta;
  size_t at = kMagicBytes;
  VisitFields(meta, [&](auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    field =
        static_cast<Field>(FromLittleEndian(bytes.subspan(at, sizeof(Field))));
    at += sizeof(Field);
  });
  RangeErrors errors;
  errors.Check("vocab_size", meta.vocab_size, 1, (1 << 24) - 1);
  errors.Check("tokens", meta.tokens, 1, RestStore::kMaxTokens);
  FORETOKEN_RETURN_IF_ERROR(Annotate(errors.status(), "REST header"));
  return meta;
}

int64_t RestSnapshotVersion(const RestMeta& meta) {
  return HeaderVersion(Encode(meta));
}

absl::StatusOr<RestMeta> WriteRestSnapshot(const std::string& path,
                                           RestMeta meta,
                                           absl::Span<const TokenId> tokens) {
  FORETOKEN_RETURN_IF_ERROR(
      RestStore::CheckTokens(tokens, static_cast<int32_t>(meta.vocab_size)));
  std::string ids;
  ids.reserve(tokens.size() * meta.token_bytes());
  for (const TokenId token : tokens) {
    for (int i = 0; i < meta.token_bytes(); ++i) {
      ids.push_back(static_cast<char>(token >> (8 * i)));
    }
  }
  meta.tokens = tokens.size();
  meta.digest = XXH3_64bits(ids.data(), ids.size());
  FORETOKEN_RETURN_IF_ERROR(
      WriteFileAtomically(path, absl::StrCat(Encode(meta), ids)));
  return meta;
}

absl::StatusOr<RestStore> DecodeRestSnapshot(std::string bytes,
                                             RestMeta& meta) {
  FORETOKEN_ASSIGN_OR_RETURN(meta, DecodeRestMeta(AsBytes(bytes)));
  if (bytes.size() != meta.file_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("REST snapshot: ", bytes.size(), " bytes, want ",
                     meta.file_bytes(), " for ", meta.tokens, " tokens"));
  }
  const absl::Span<const uint8_t> ids = AsBytes(bytes).subspan(RestMetaBytes());
  if (XXH3_64bits(ids.data(), ids.size()) != meta.digest) {
    return absl::InvalidArgumentError("REST snapshot: checksum differs");
  }
  const size_t width = static_cast<size_t>(meta.token_bytes());
  std::vector<TokenId> tokens(meta.tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] =
        static_cast<TokenId>(FromLittleEndian(ids.subspan(i * width, width)));
  }
  // Building the suffix array takes memory: the file's is given back before.
  std::string().swap(bytes);
  return RestStore::Create(tokens, static_cast<int32_t>(meta.vocab_size));
}

}  // namespace foretoken
