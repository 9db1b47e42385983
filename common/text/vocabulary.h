// Vocabulary: the text and the kind of every token, by id.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_TEXT_VOCABULARY_H_
#define FORETOKEN_COMMON_TEXT_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/base/types.h"

namespace foretoken {

// The values enter the fingerprint: never renumber them.
enum class TokenKind : uint8_t {
  kAbsent = 0,   // the files do not define this id
  kText = 1,     // its bytes are text
  kByte = 2,     // one raw byte of a character without a token (<0x0A>)
  kSpecial = 3,  // control token; never text
  kUnknown = 4,  // replaces text that no token can represent
};

class Vocabulary {
 public:
  // Loaders refuse ids of this value or above.
  static constexpr TokenId kMaxSize = 1 << 22;

  // `content` identifies the token: its bytes in a text, or the name of a
  // special token. `bytes` is its contribution to decoded text. Returns false
  // if the id is already taken.
  bool Add(TokenId id, absl::string_view content, absl::string_view bytes,
           TokenKind kind);

  // Exempts this token from the leading-space rules of decoding: its space was
  // not inserted by encoding.
  void KeepLeadingSpace(TokenId id) { tokens_[id].keeps_leading_space = true; }
  bool keeps_leading_space(TokenId id) const {
    return Contains(id) && tokens_[id].keeps_leading_space;
  }

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size(); }
  // kAbsent and empty for ids outside the vocabulary.
  TokenKind kind(TokenId id) const {
    return Contains(id) ? tokens_[id].kind : TokenKind::kAbsent;
  }
  absl::string_view bytes(TokenId id) const {
    return Contains(id) ? absl::string_view(tokens_[id].bytes)
                        : absl::string_view();
  }
  absl::string_view content(TokenId id) const {
    return Contains(id) ? absl::string_view(tokens_[id].content)
                        : absl::string_view();
  }

  // SHA-256 of the size and of every token's kind, content length and content,
  // in id order. A text token written <|so|> counts as special: converters to
  // GGUF mark it as a control token, whatever the original file says.
  Sha256Digest Fingerprint() const;

 private:
  struct Token {
    std::string content;
    std::string bytes;
    TokenKind kind = TokenKind::kAbsent;
    bool keeps_leading_space = false;
  };
  std::vector<Token> tokens_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_VOCABULARY_H_
