// The added tokens of a tokenizer.json: strings that are one token wherever
// they stand in a text, whatever stands around them.
//
// Two sets: tokens that are looked for in the text as it is, and tokens that
// are looked for in the normalised text between those. The leftmost match
// wins, the longest among those.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_ADDED_TOKENS_H_
#define FORETOKEN_COMMON_TEXT_ADDED_TOKENS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"
#include "common/base/types.h"
#include "common/text/prefix_trie.h"

namespace foretoken {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      // left out by decoding
  bool normalized = true;    // looked for in the normalised text
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
};

// `field`: the value of "added_tokens". InvalidArgument names field and value.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const Json& field);

class AddedTokenMatcher {
 public:
  // A stretch of text, or a token (id >= 0).
  using Sink = absl::FunctionRef<void(TokenId id, absl::string_view text)>;

  // `pattern` is what to look for in place of the token's content.
  void Add(const AddedToken& token, absl::string_view pattern);

  // Calls `sink` for every part of `text` that is not empty, in order. Linear
  // in the length of the text (times the longest token at worst).
  void Split(absl::string_view text, Sink sink) const;

 private:
  std::vector<AddedToken> tokens_;
  PrefixTrie trie_;  // pattern -> index of tokens_
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_ADDED_TOKENS_H_
