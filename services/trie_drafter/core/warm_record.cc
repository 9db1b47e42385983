#include "services/trie_drafter/core/warm_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/token_range.h"

namespace foretoken::trie_drafter {
namespace {

constexpr absl::string_view kMagic = "FTWR";
constexpr uint8_t kVersion = 1;
constexpr size_t kHeaderBytes = 12;
constexpr size_t kChecksumBytes = 16;

void Put32(size_t value, std::string& out) {
  AppendLittleEndian(static_cast<uint32_t>(value), out);
}

uint32_t Get32(absl::string_view bytes) {
  return static_cast<uint32_t>(FromLittleEndian(AsBytes(bytes.substr(0, 4))));
}

// Covers the scope's key, too: a record that was copied to another scope's list
// does not decode there.
std::string Checksum(const ScopeKey& key, absl::string_view body) {
  const Sha256Digest digest =
      Sha256().Update(absl::MakeConstSpan(key.digest)).Update(body).Finish();
  return std::string(digest.begin(), digest.begin() + kChecksumBytes);
}

absl::Status Bad(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("stored record: ", what));
}

}  // namespace

ScopeKey ScopeKey::Of(const std::string& cache_scope,
                      const std::string& tokenizer_fingerprint) {
  // The length prefix separates the two fields unambiguously.
  return {Sha256()
              .Update("foretoken trie_drafter scope\n")
              .Update(absl::StrCat(cache_scope.size(), "\n", cache_scope))
              .Update(tokenizer_fingerprint)
              .Finish()};
}

std::string EncodeRecord(const ScopeKey& key, RecordKind kind,
                         const std::vector<std::vector<TokenId>>& sequences) {
  size_t first = sequences.size();
  size_t tokens = 0;
  while (first > 0 && tokens < kMaxRecordTokens) {
    tokens += sequences[--first].size();
  }
  // The oldest sequence that fits only in part loses its oldest tokens if it is
  // an output; a phrase is useful only as a whole and is left out. Texts never
  // exceed the limit: ScopePrior cuts its batches to it.
  const size_t over = tokens - std::min(tokens, kMaxRecordTokens);
  if (over > 0 && kind == RecordKind::kPhrases) ++first;
  std::string record(kMagic);
  record.push_back(static_cast<char>(kVersion));
  record.push_back(static_cast<char>(kind));
  record.append(2, '\0');
  Put32(sequences.size() - first, record);
  for (size_t i = first; i < sequences.size(); ++i) {
    const bool cut = i == first && kind == RecordKind::kOutput;
    const size_t from = cut ? over : 0;
    Put32(sequences[i].size() - from, record);
    for (size_t at = from; at < sequences[i].size(); ++at) {
      AppendLittleEndian(sequences[i][at], record);
    }
  }
  return record + Checksum(key, record);
}

absl::StatusOr<std::vector<std::vector<TokenId>>> DecodeRecord(
    const ScopeKey& key, RecordKind kind, absl::string_view bytes,
    int32_t vocab_size) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes ||
      bytes.size() > kMaxRecordBytes) {
    return Bad(absl::StrCat(bytes.size(), " bytes"));
  }
  if (bytes.substr(0, 4) != kMagic) return Bad("not a record");
  if (static_cast<uint8_t>(bytes[4]) != kVersion) {
    return Bad(absl::StrCat("version ", static_cast<uint8_t>(bytes[4]),
                            ", want ", kVersion));
  }
  if (static_cast<uint8_t>(bytes[5]) != static_cast<uint8_t>(kind) ||
      bytes[6] != 0 || bytes[7] != 0) {
    return Bad("of another kind");
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  if (Checksum(key, body) != bytes.substr(body.size())) {
    return Bad("wrong checksum");
  }
  const uint32_t count = Get32(bytes.substr(8));
  absl::string_view rest = body.substr(kHeaderBytes);
  std::vector<std::vector<TokenId>> sequences;
  // Neither `count` nor a length is trusted: both are checked against the bytes
  // that are left before anything is allocated.
  for (uint32_t i = 0; i < count; ++i) {
    if (rest.size() < 4) return Bad("truncated");
    const size_t length = Get32(rest);
    rest.remove_prefix(4);
    if (rest.size() / 4 < length) return Bad("truncated");
    std::vector<TokenId>& tokens = sequences.emplace_back(length);
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(Get32(rest));
      rest.remove_prefix(4);
      if (!InVocabulary(token, vocab_size)) {
        return Bad("a token outside the vocabulary");
      }
    }
  }
  if (!rest.empty()) return Bad("trailing bytes");
  return sequences;
}

}  // namespace foretoken::trie_drafter
