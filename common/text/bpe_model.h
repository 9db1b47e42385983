// The BPE model of a tokenizer.json: maps one pre-tokenised piece to ids.
//
// Thread-compatible: const methods may be called concurrently, each thread with
// its own Buffers.
#ifndef FORETOKEN_COMMON_TEXT_BPE_MODEL_H_
#define FORETOKEN_COMMON_TEXT_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"
#include "common/text/bpe.h"

namespace foretoken {

class BpeModel {
 public:
  struct Buffers {
    std::vector<BpeSymbol> symbols;
    BpeMerges::Scratch scratch;
  };

  // `field`: the value of "model". With `byte_level`, pieces are bytes and the
  // vocabulary is written in the byte-level alphabet. InvalidArgument names
  // field and value.
  static absl::StatusOr<BpeModel> Create(const Json& field, bool byte_level);

  // Appends the ids of `piece`: arbitrary bytes with byte_level, else valid
  // UTF-8.
  void Encode(absl::string_view piece, Buffers& buffers,
              std::vector<TokenId>& ids) const;

  // The vocabulary as written in the file.
  const absl::flat_hash_map<std::string, TokenId>& vocabulary() const {
    return vocabulary_;
  }
  TokenId unknown() const { return unknown_; }  // -1: none
  bool byte_fallback() const { return byte_fallback_; }

 private:
  absl::Status LoadVocabulary(const Json& model);
  absl::Status LoadUnknown(const Json& model);
  absl::Status LoadMerges(const Json& model);
  absl::Status LoadBytes(bool byte_level);
  void IndexCharacters();

  void EncodeWhole(absl::string_view piece, Buffers& buffers,
                   std::vector<TokenId>& ids) const;
  void AppendBytes(absl::string_view piece, Buffers& buffers) const;
  void AppendCharacters(absl::string_view piece, Buffers& buffers) const;

  absl::flat_hash_map<std::string, TokenId> vocabulary_;
  // With ignore_merges: pieces that are a token as a whole.
  absl::flat_hash_map<std::string, TokenId> whole_pieces_;
  BpeMerges merges_;
  CharacterSymbols characters_;
  std::array<TokenId, 256> bytes_{};  // byte_level or byte_fallback; -1: none
  TokenId unknown_ = -1;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  bool cut_at_spaces_ = false;  // no merge extends across a kSpaceSymbol
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_BPE_MODEL_H_
