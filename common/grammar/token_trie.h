// TokenTrie: the bytes of a vocabulary's tokens as a trie, laid out for one
// forward walk, and TokenVocabulary, the tries that masks need.
//
// Thread-safe: immutable once made.
#ifndef FORETOKEN_COMMON_GRAMMAR_TOKEN_TRIE_H_
#define FORETOKEN_COMMON_GRAMMAR_TOKEN_TRIE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/grammar/character_groups.h"
#include "common/text/vocabulary.h"

namespace foretoken {
class Tokenizer;
}  // namespace foretoken

namespace foretoken::grammar {

// One bit for every token id.
using TokenBits = std::vector<uint64_t>;

inline void SetToken(absl::Span<uint64_t> bits, TokenId token) {
  bits[token >> 6] |= uint64_t{1} << (token & 63);
}
inline bool HasToken(absl::Span<const uint64_t> bits, TokenId token) {
  return (bits[token >> 6] >> (token & 63)) & 1;
}

// Takes 24 bytes a node, and 4 a token.
class TokenTrie {
 public:
  struct Entry {
    absl::string_view bytes;  // at least one
    TokenId token = -1;
    absl::Span<const CharacterGroups> groups;  // GroupsToTheEnd(bytes)
  };
  // In depth-first order: children follow their parent.
  struct Node {
    TokenId token = -1;  // that ends here; -1: none
    int32_t skip = 0;    // the node after those below this one
    uint16_t depth = 0;  // of a first byte: 0
    uint8_t byte = 0;
  };

  // `tokens`: in the order of their bytes, each string once. Not kept.
  explicit TokenTrie(absl::Span<const Entry> tokens);

  absl::Span<const Node> nodes() const { return nodes_; }
  // Characters that follow the node's byte in tokens, if one ends with it.
  CharacterGroups groups_below(int32_t node) const { return groups_[node]; }
  // The tokens that end at the node and below it.
  absl::Span<const TokenId> tokens_from(int32_t node) const {
    const int32_t first = first_token_[node];
    const int32_t next = nodes_[node].skip;
    const int32_t end = next < static_cast<int32_t>(nodes_.size())
                            ? first_token_[next]
                            : static_cast<int32_t>(tokens_.size());
    return absl::MakeConstSpan(tokens_).subspan(first, end - first);
  }
  int max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_;
  // By node, apart from what every step of a walk reads.
  std::vector<CharacterGroups> groups_;
  std::vector<int32_t> first_token_;  // index in tokens_
  std::vector<TokenId> tokens_;       // in the order of their bytes
  int max_depth_ = 0;  // bytes of the longest token
};

class TokenVocabulary {
 public:
  // Tokens that consist of plain characters (Automaton::PlainCharacters), at
  // most `characters` of them, and a trie of all others.
  struct Slice {
    int characters = 0;  // 0: no tokens are apart
    TokenBits tokens;
    TokenTrie rest;
  };
  // Slices are for up to this many characters.
  static constexpr int kMostCharacters = 64;

  // `size`: ids that the model has, which may be more or fewer than the
  // vocabulary's; 0: those of the vocabulary. Special tokens, those without
  // bytes, those longer than 4,096 bytes and those with a byte 0xFF, which no
  // text has, are never text.
  explicit TokenVocabulary(std::shared_ptr<const Vocabulary> vocabulary,
                           int32_t size = 0);
  // The tokenizer's; null without a tokenizer.
  static std::shared_ptr<const TokenVocabulary> Of(
      std::shared_ptr<const Tokenizer> tokenizer, int32_t size = 0);

  int32_t size() const { return size_; }
  size_t words() const { return (static_cast<size_t>(size_) + 63) / 64; }
  // Empty for tokens that are not text.
  absl::string_view bytes(TokenId token) const;
  // The bytes that a grammar reads for a token: those of a text, or, for a
  // special token, ControlBytes of its name. Empty for other tokens.
  absl::string_view read_bytes(TokenId token) const;
  // The name between two bytes 0xFF, which UTF-8 does not have: only a grammar
  // that asks for the special token of this name reads them.
  static std::string ControlBytes(absl::string_view name);
  static constexpr char kControlByte = '\xFF';  // where they begin and end
  // What follows is only needed for masks. It is made when first asked for,
  // which takes a second for a large vocabulary, or by PrepareMasks.
  void PrepareMasks() const;
  // The slice for a state that lets `characters` plain characters through.
  const Slice& slice(int characters) const;
  // Tokens whose bytes an earlier id has as well: that id and they.
  absl::Span<const std::pair<TokenId, TokenId>> twins() const {
    PrepareMasks();
    return twins_;
  }

 private:
  void MakeSlices() const;

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const int32_t size_;
  // By special token.
  absl::flat_hash_map<TokenId, std::string> controls_;
  mutable absl::once_flag made_;
  mutable std::vector<Slice> slices_;  // by falling number of characters
  mutable std::vector<std::pair<TokenId, TokenId>> twins_;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_TOKEN_TRIE_H_
