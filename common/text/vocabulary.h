// The tokens of a vocabulary by id: what each one writes, and what kind it is.
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

// The values go into the fingerprint: never renumber.
enum class TokenKind : uint8_t {
  kAbsent = 0,   // an id that the files leave out
  kText = 1,     // its bytes are text
  kByte = 2,     // one raw byte of a character that has no token (<0x0A>)
  kSpecial = 3,  // steers the model; never text
  kUnknown = 4,  // stands for what no token can write
};

class Vocabulary {
 public:
  // Ids at or over this are refused by the loaders.
  static constexpr TokenId kMaxSize = 1 << 22;

  // `content` identifies the token: its bytes in a text, or the name of a
  // special one. `bytes` is what decoding writes for it in the middle of a
  // text. False if the id is taken already.
  bool Add(TokenId id, absl::string_view content, absl::string_view bytes,
           TokenKind kind);

  // Leading-space rules of decoding leave this token alone: its space is not
  // one that encoding put in.
  void KeepLeadingSpace(TokenId id) { tokens_[id].keeps_leading_space = true; }
  bool keeps_leading_space(TokenId id) const {
    return Contains(id) && tokens_[id].keeps_leading_space;
  }

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size(); }
  // kAbsent and empty for ids outside.
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

  // SHA-256 of size and, for every id in order, kind, length and content.
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
