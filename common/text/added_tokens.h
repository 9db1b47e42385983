// The added tokens of a tokenizer.json: strings that always become a single
// token, regardless of the surrounding text.
//
// There are two sets: tokens matched in the raw text, and tokens matched in the
// normalised text between those. The leftmost match wins; among those, the
// longest.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_ADDED_TOKENS_H_
#define FORETOKEN_COMMON_TEXT_ADDED_TOKENS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/base/types.h"
#include "common/text/prefix_trie.h"

namespace foretoken {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;      // omitted by decoding
  bool normalized = true;    // matched in the normalised text
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // consumes the white space before it
  bool rstrip = false;       // consumes the white space after it
};

// `field`: the value of "added_tokens". InvalidArgument names field and value.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const Json& field);

class AddedTokenMatcher {
 public:
  // Receives a stretch of text (id -1) or a token (id >= 0).
  using Sink = absl::FunctionRef<void(TokenId id, absl::string_view text)>;
  // Whether a token may be found at [begin, end) of the text.
  using Allowed = absl::FunctionRef<bool(const AddedToken& token, size_t begin,
                                         size_t end)>;

  // Adds a token that is matched by `pattern` instead of its own content.
  void Add(const AddedToken& token, absl::string_view pattern);

  // Calls `sink` for every non-empty part of `text`, in order. Linear in the
  // length of the text (times the longest token in the worst case).
  void Split(absl::string_view text, Sink sink) const;
  // As above without the matches that are not allowed: their text is text.
  void Split(absl::string_view text, Allowed allowed, Sink sink) const;

 private:
  std::vector<AddedToken> tokens_;
  PrefixTrie trie_;  // pattern -> index of tokens_
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_ADDED_TOKENS_H_
