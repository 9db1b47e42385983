// A byte-level tokenizer.json of 50 ids, for tests that need text.
//
//   0 <s>, 1 </s> (special)   2..27 a..z   28 space   29, 30 the two bytes of é
//   31.. "th" "he" "in" "er" "an", then pairs xa xb xc ... up to 49
//
// A prompt gets <s> in front.
#ifndef FORETOKEN_TESTS_SUPPORT_TINY_TOKENIZER_H_
#define FORETOKEN_TESTS_SUPPORT_TINY_TOKENIZER_H_

#include <string>

namespace foretoken::testing {

inline constexpr int kTinyVocabulary = 50;

std::string TinyTokenizerJson();

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_TINY_TOKENIZER_H_
