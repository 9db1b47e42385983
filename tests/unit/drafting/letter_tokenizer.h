// A tokenizer for tests: one token a byte of ASCII, BOS and an end token. '#'
// is a byte that it does not know.
#ifndef FORETOKEN_TESTS_UNIT_DRAFTING_LETTER_TOKENIZER_H_
#define FORETOKEN_TESTS_UNIT_DRAFTING_LETTER_TOKENIZER_H_

#include <string>
#include <utility>
#include <vector>

#include "common/text/tokenizer.h"

namespace foretoken {

class LetterTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 128;
  static constexpr TokenId kEos = 129;
  static constexpr TokenId kUnknown = 130;

  LetterTokenizer() : Tokenizer(MakeParts()) {}

  std::vector<TokenId> Encode(absl::string_view text) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(c == '#' ? kUnknown : c);
    return ids;
  }

 private:
  static Parts MakeParts() {
    Parts parts;
    for (TokenId id = 0; id < 128; ++id) {
      const std::string byte(1, static_cast<char>(id));
      parts.vocabulary.Add(id, byte, byte, TokenKind::kText);
    }
    parts.vocabulary.Add(kBos, "<s>", "", TokenKind::kSpecial);
    parts.vocabulary.Add(kEos, "</s>", "", TokenKind::kSpecial);
    parts.vocabulary.Add(kUnknown, "<unk>", "?", TokenKind::kUnknown);
    parts.bos_token = kBos;
    parts.eos_token = kEos;
    return parts;
  }
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_UNIT_DRAFTING_LETTER_TOKENIZER_H_
