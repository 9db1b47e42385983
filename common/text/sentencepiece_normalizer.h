// SentencePiece's normaliser: character rewriting, whitespace, dummy prefix.
//
// The rewriting table (`precompiled_charsmap`, e.g. nmt_nfkc) is a double-array
// trie from strings to strings; the longest match wins. Identity models have
// none. Malformed UTF-8 becomes one U+FFFD per byte, as in the original.
//
// Source: SentencePiece, src/normalizer.cc for the rules; J. Aoe, "An Efficient
// Digital Search Algorithm by Using a Double-Array Structure" (1989), in the
// layout of darts-clone.
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_SENTENCEPIECE_NORMALIZER_H_
#define FORETOKEN_COMMON_TEXT_SENTENCEPIECE_NORMALIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/prefix_trie.h"
#include "common/text/sentencepiece_model.h"

namespace foretoken {

class SentencePieceNormalizer {
 public:
  // InvalidArgument for a malformed rewriting table.
  static absl::StatusOr<SentencePieceNormalizer> Create(
      const SentencePieceModel& model);

  // Returns the text that BPE works on. Linear in the length of `text`.
  std::string Normalize(absl::string_view text) const;

  // The user-defined pieces, which are never rewritten and never merged.
  const PrefixTrie& user_defined() const { return user_defined_; }

 private:
  struct Prefix {
    absl::string_view normalized;
    size_t consumed = 0;
  };

  absl::Status LoadTable(absl::string_view table);
  Prefix NormalizePrefix(absl::string_view text) const;
  bool FindInTable(absl::string_view text, Prefix& found) const;

  PrefixTrie user_defined_;
  std::vector<uint32_t> units_;  // the double array; empty: identity
  std::string rewrites_;         // zero-terminated strings, concatenated
  bool add_dummy_prefix_ = true;
  bool remove_extra_whitespaces_ = true;
  absl::string_view space_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_SENTENCEPIECE_NORMALIZER_H_
