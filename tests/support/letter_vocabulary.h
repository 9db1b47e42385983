// A vocabulary of letters, for constraints on the text of a fake model.
#ifndef FORETOKEN_TESTS_SUPPORT_LETTER_VOCABULARY_H_
#define FORETOKEN_TESTS_SUPPORT_LETTER_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/grammar/token_trie.h"
#include "common/text/vocabulary.h"

namespace foretoken::testing {

// Id 0 ends a text, 1 to 26 are "a" to "z"; the others of `size` are no text.
inline std::shared_ptr<const grammar::TokenVocabulary> LetterVocabulary(
    int32_t size) {
  auto letters = std::make_shared<Vocabulary>();
  letters->Add(0, "</s>", "</s>", TokenKind::kSpecial);
  for (TokenId id = 1; id <= 26; ++id) {
    const std::string letter(1, static_cast<char>('a' + id - 1));
    letters->Add(id, letter, letter, TokenKind::kText);
  }
  return std::make_shared<grammar::TokenVocabulary>(std::move(letters), size);
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_LETTER_VOCABULARY_H_
