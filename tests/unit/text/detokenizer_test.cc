#include "common/text/detokenizer.h"

#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

// 0..255 are the bytes (byte tokens if `byte_tokens`), 256 " a", 257 special,
// 258 unknown, written "?".
class FakeTokenizer : public Tokenizer {
 public:
  FakeTokenizer(DecodeRules rules, bool byte_tokens)
      : Tokenizer(MakeParts(rules, byte_tokens)) {}

  std::vector<TokenId> Encode(absl::string_view) const override { return {}; }

 private:
  static Parts MakeParts(DecodeRules rules, bool byte_tokens) {
    Parts parts;
    parts.rules = rules;
    for (int byte = 0; byte < 256; ++byte) {
      const std::string text(1, static_cast<char>(byte));
      parts.vocabulary.Add(byte, text, text,
                           byte_tokens ? TokenKind::kByte : TokenKind::kText);
    }
    parts.vocabulary.Add(256, " a", " a", TokenKind::kText);
    parts.vocabulary.Add(257, "<s>", "", TokenKind::kSpecial);
    parts.vocabulary.Add(258, "<unk>", "?", TokenKind::kUnknown);
    parts.vocabulary.Add(259, " b", " b", TokenKind::kText);
    parts.vocabulary.KeepLeadingSpace(259);
    return parts;
  }
};

using LeadingSpace = DecodeRules::LeadingSpace;
using Malformed = DecodeRules::Malformed;

std::string Decode(DecodeRules rules, bool byte_tokens,
                   const std::vector<TokenId>& ids) {
  return FakeTokenizer(rules, byte_tokens).Decode(ids).value();
}

TEST(DetokenizerTest, KeepsBackBytesThatMayBecomeACharacter) {
  const FakeTokenizer tokenizer({}, false);
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId byte : {0xF0, 0x9F, 0xA6}) {
    FORETOKEN_ASSERT_OK(detokenizer.Push(byte, text));
    EXPECT_EQ(text, "");
  }
  EXPECT_EQ(detokenizer.pending(), "\xF0\x9F\xA6");
  FORETOKEN_ASSERT_OK(detokenizer.Push(0x99, text));
  EXPECT_EQ(text, "\U0001F999");
  EXPECT_EQ(detokenizer.pending(), "");
}

TEST(DetokenizerTest, BrokenBytesAreReplacedAsEachFormatDoes) {
  const std::vector<TokenId> ids = {0xC3, 0xA9, 0xE4, 0xB8, 256};
  EXPECT_EQ(Decode({Malformed::kMaximalSubpart, {}}, false, ids),
            "\u00e9\ufffd a");
  EXPECT_EQ(Decode({Malformed::kByte, {}}, true, ids), "\u00e9\ufffd\ufffd a");
  EXPECT_EQ(Decode({Malformed::kByteTokenRun, {}}, true, ids),
            "\ufffd\ufffd\ufffd\ufffd a");
}

TEST(DetokenizerTest, ASpecialTokenEndsAByteRunInSentencePieceOnly) {
  const std::vector<TokenId> ids = {0xC3, 257, 0xA9};
  EXPECT_EQ(Decode({Malformed::kByte, {}}, true, ids), "\ufffd\ufffd");
  EXPECT_EQ(Decode({Malformed::kByteTokenRun, {}}, true, ids), "\u00e9");
}

TEST(DetokenizerTest, LeadingSpaceRules) {
  const auto decode = [](LeadingSpace rule, const std::vector<TokenId>& ids) {
    return Decode({Malformed::kMaximalSubpart, rule}, false, ids);
  };
  EXPECT_EQ(decode(LeadingSpace::kKeep, {257, 256, 256}), " a a");
  EXPECT_EQ(decode(LeadingSpace::kStripFromFirstToken, {257, 256, 256}), "a a");
  EXPECT_EQ(decode(LeadingSpace::kStripFromFirstToken, {' ', 256}), " a");
  EXPECT_EQ(decode(LeadingSpace::kStripUntilText, {' ', ' ', 256}), "a");
  EXPECT_EQ(decode(LeadingSpace::kStripFromText, {' ', 256}), " a");
  EXPECT_EQ(decode(LeadingSpace::kStripAllOfFirstToken, {' ', 256}), " a");
  EXPECT_EQ(decode(LeadingSpace::kStripFromFirstToken, {258, 256}), "? a");
  EXPECT_EQ(decode(LeadingSpace::kStripFromFirstToken, {259, 256}), " b a");
}

TEST(DetokenizerTest, FlushStartsAnew) {
  const FakeTokenizer tokenizer(
      {Malformed::kMaximalSubpart, LeadingSpace::kStripFromText}, false);
  Detokenizer detokenizer(tokenizer);
  for (int round = 0; round < 2; ++round) {
    std::string text;
    FORETOKEN_ASSERT_OK(detokenizer.Push({256, 0xC3}, text));
    detokenizer.Flush(text);
    EXPECT_EQ(text, "a\ufffd");
  }
}

TEST(DetokenizerTest, AnIdOutsideTheVocabularyIsRefusedByValue) {
  const FakeTokenizer tokenizer({}, false);
  Detokenizer detokenizer(tokenizer);
  std::string text;
  EXPECT_THAT(detokenizer.Push(260, text),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                "token id 260: want 0..259"));
}

}  // namespace
}  // namespace foretoken
