#include "common/text/llama2c_tokenizer.h"

#include <cstdio>
#include <cstring>

#include "common/base/file.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

void AppendWord(uint32_t word, std::string& out) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(word >> (8 * i)));
}

void AppendToken(float score, const std::string& text, std::string& out) {
  uint32_t bits;
  static_assert(sizeof bits == sizeof score);
  std::memcpy(&bits, &score, sizeof bits);
  AppendWord(bits, out);
  AppendWord(static_cast<uint32_t>(text.size()), out);
  out += text;
}

// Special tokens and bytes, then " ", "a", "b", "ab", " ab".
std::string MakeBin() {
  std::string out;
  AppendWord(7, out);
  AppendToken(0, "<unk>", out);
  AppendToken(0, "\n<s>\n", out);
  AppendToken(0, "\n</s>\n", out);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    AppendToken(0, name, out);
  }
  AppendToken(-3, " ", out);
  AppendToken(-4, "a", out);
  AppendToken(-5, "b", out);
  AppendToken(-1, "ab", out);
  AppendToken(-2, " ab", out);
  return out;
}

constexpr int32_t kVocabSize = 264;

TEST(Llama2cTokenizerTest, EncodesAsRunCDoes) {
  const auto model = ParseLlama2cTokenizer(MakeBin(), kVocabSize);
  FORETOKEN_ASSERT_OK(model);
  const testing::TempDir dir;
  dir.Write("tokenizer.model", SerializeSentencePieceModel(*model));
  const auto tokenizer = Tokenizer::Load(dir.path());
  FORETOKEN_ASSERT_OK(tokenizer);
  EXPECT_EQ((*tokenizer)->vocab_size(), kVocabSize);
  EXPECT_EQ((*tokenizer)->bos_token(), 1);
  EXPECT_EQ((*tokenizer)->eos_token(), 2);
  // " ab", " ", " ab", then the two bytes of U+00E9: white space is kept.
  EXPECT_THAT((*tokenizer)->EncodePrompt("ab  ab\u00e9"),
              ::testing::ElementsAre(1, 263, 259, 263, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ((*tokenizer)->Decode({1, 263, 259, 263}).value(), "ab  ab");
}

TEST(Llama2cTokenizerTest, RefusesBrokenFilesByToken) {
  const std::string bin = MakeBin();
  using absl::StatusCode;
  EXPECT_THAT(ParseLlama2cTokenizer(bin.substr(0, bin.size() - 1), kVocabSize),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("token 263")));
  EXPECT_THAT(ParseLlama2cTokenizer(bin, kVocabSize - 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("after token")));
  EXPECT_THAT(ParseLlama2cTokenizer(bin, 100),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("100")));
  EXPECT_THAT(ParseLlama2cTokenizer("", kVocabSize),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("longest")));
  std::string renamed = bin;
  renamed.replace(renamed.find("<0x41>"), 6, "<0xZZ>");
  EXPECT_THAT(ParseLlama2cTokenizer(renamed, kVocabSize),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("<0x41>")));
}

TEST(Llama2cTokenizerTest, ARealFileEqualsItsSentencePieceModel) {
  FORETOKEN_DATA_OR_SKIP(bin_path, "models/tinyllamas_tok512/tok512.bin");
  FORETOKEN_DATA_OR_SKIP(model_path, "models/tinyllamas_tok512/tok512.model");
  const auto model = ParseLlama2cTokenizer(ReadFile(bin_path).value(), 512);
  FORETOKEN_ASSERT_OK(model);
  const testing::TempDir dir;
  const auto converted = Tokenizer::Load(
      dir.Write("tokenizer.model", SerializeSentencePieceModel(*model)));
  FORETOKEN_ASSERT_OK(converted);
  const auto original = Tokenizer::Load(model_path);
  FORETOKEN_ASSERT_OK(original);
  EXPECT_EQ((*converted)->fingerprint(), (*original)->fingerprint());
  for (const std::string text :
       {"Once upon a time, there was a little girl named Lily.",
        "\"Hi!\" said Tom.\nHe ran.", "caf\u00e9 \U0001F600 \u4eca", "a"}) {
    EXPECT_EQ((*converted)->Encode(text), (*original)->Encode(text)) << text;
  }
}

}  // namespace
}  // namespace foretoken
