#include "common/text/vocabulary.h"

#include "gtest/gtest.h"

namespace foretoken {
namespace {

Sha256Digest FingerprintOf(const char* content, TokenKind kind) {
  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.Add(0, content, content, kind));
  return vocabulary.Fingerprint();
}

// A folder of Hugging Face calls such tokens text where a GGUF file that
// llama.cpp made of it has them as control tokens.
TEST(VocabularyTest, TheFingerprintTakesWhatLooksSpecialForSpecial) {
  for (const char* content :
       {"<|fim_hole|>", "<｜fim▁hole｜>", "<unused7>", "<pad>", "<mask>",
        "<2mass>", "[@BOS@]"}) {
    EXPECT_EQ(FingerprintOf(content, TokenKind::kText),
              FingerprintOf(content, TokenKind::kSpecial))
        << content;
  }
  for (const char* content : {"<p>", "|>", "unused", "[BOS]", "<|", "｜"}) {
    EXPECT_NE(FingerprintOf(content, TokenKind::kText),
              FingerprintOf(content, TokenKind::kSpecial))
        << content;
  }
}

}  // namespace
}  // namespace foretoken
