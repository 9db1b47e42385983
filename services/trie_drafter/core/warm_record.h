// Records of a warm start: outputs, phrases and texts as bytes, validated when
// they are decoded.
//
//   "FTWR" | version u8 | kind u8 | reserved u16 | count u32
//   | count x (tokens u32, token i32 ...) | first 16 bytes of SHA-256 of the
//   store's key and all before
//
// Little-endian. The key in the checksum ties a record to its scope and
// tokenizer. Thread-safe.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_RECORD_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "services/trie_drafter/core/warm_store.h"

namespace foretoken::trie_drafter {

// Tokens of one record: the last ones of an output, the newest phrases.
inline constexpr size_t kMaxRecordTokens = size_t{1} << 13;
inline constexpr size_t kMaxRecordBytes = 4 * 2 * kMaxRecordTokens + 64;

// `sequences` oldest first, none empty; what exceeds kMaxRecordTokens is left
// out, oldest first.
std::string EncodeRecord(const ScopeKey& key, RecordKind kind,
                         const std::vector<std::vector<TokenId>>& sequences);

// DataLoss, saying what is wrong, for anything that EncodeRecord would not have
// written for this key and kind, and for tokens outside 0 .. vocab_size - 1.
absl::StatusOr<std::vector<std::vector<TokenId>>> DecodeRecord(
    const ScopeKey& key, RecordKind kind, absl::string_view bytes,
    int32_t vocab_size);

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_CORE_WARM_RECORD_H_
