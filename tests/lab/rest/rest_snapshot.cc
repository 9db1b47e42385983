#include "tests/lab/rest/rest_snapshot.h"

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

struct RestFormat {
  using Meta = RestMeta;
  static constexpr char kMagic[] = "FTREST01";
  static constexpr char kName[] = "REST header";
  static constexpr char kFile[] = "a REST snapshot of format 1";

  template <typename Fields, typename Visit>
  static void VisitFields(Fields& meta, Visit&& visit) {
    for (auto& byte : meta.tokenizer_fingerprint) visit(byte);
    visit(meta.vocab_size);
    visit(meta.documents);
    visit(meta.tokens);
    visit(meta.digest);
  }
};
using Header = SnapshotHeader<RestFormat>;

}  // namespace

size_t RestMetaBytes() { return Header::Bytes(); }

uint64_t RestMeta::file_bytes() const {
  return RestMetaBytes() + tokens * static_cast<uint64_t>(token_bytes());
}

absl::StatusOr<RestMeta> DecodeRestMeta(absl::Span<const uint8_t> bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(const RestMeta meta, Header::Decode(bytes));
  RangeErrors errors;
  errors.Check("vocab_size", meta.vocab_size, 1, kMaxPackedVocabSize);
  errors.Check("tokens", meta.tokens, 1, RestStore::kMaxTokens);
  FORETOKEN_RETURN_IF_ERROR(Annotate(errors.status(), RestFormat::kName));
  return meta;
}

int64_t RestSnapshotVersion(const RestMeta& meta) {
  return HeaderVersion(Header::Encode(meta));
}

absl::StatusOr<RestMeta> WriteRestSnapshot(const std::string& path,
                                           RestMeta meta,
                                           absl::Span<const TokenId> tokens) {
  FORETOKEN_RETURN_IF_ERROR(
      RestStore::CheckTokens(tokens, static_cast<int32_t>(meta.vocab_size)));
  const std::string ids = PackTokens(tokens, meta.token_bytes());
  meta.tokens = tokens.size();
  meta.digest = XXH3_64bits(ids.data(), ids.size());
  FORETOKEN_RETURN_IF_ERROR(
      WriteFileAtomically(path, absl::StrCat(Header::Encode(meta), ids)));
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
  const std::vector<TokenId> tokens = UnpackTokens(ids, meta.token_bytes());
  // Building the suffix array takes memory: the file's is given back before.
  std::string().swap(bytes);
  return RestStore::Create(tokens, static_cast<int32_t>(meta.vocab_size));
}

}  // namespace foretoken
