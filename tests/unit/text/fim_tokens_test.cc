#include "common/text/fim_tokens.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/gguf/gguf_writer.h"
#include "common/text/gguf_tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/ascii_tokenizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Vocabulary Named(const std::vector<std::string>& names) {
  Vocabulary vocabulary;
  for (size_t i = 0; i < names.size(); ++i) {
    vocabulary.Add(static_cast<TokenId>(i), names[i], names[i],
                   TokenKind::kText);
  }
  return vocabulary;
}

TEST(FimTokensTest, TheyAreFoundByTheNamesOfOneFamily) {
  const FimTokens qwen = FindFimTokens(
      Named({"a", "<|fim_middle|>", "<|fim_prefix|>", "<|fim_suffix|>",
             "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|endoftext|>"}),
      {});
  EXPECT_TRUE(qwen.complete());
  EXPECT_EQ(qwen.prefix, 2);
  EXPECT_EQ(qwen.suffix, 3);
  EXPECT_EQ(qwen.middle, 1);
  EXPECT_EQ(qwen.repository, 5);
  EXPECT_EQ(qwen.file, 6);
  EXPECT_THAT(qwen.ends(), ElementsAre(2, 3, 1, 4, 5, 6, 7));
  EXPECT_THAT(qwen.ends(), SizeIs(kMaxFimEnds));
  const FimTokens star = FindFimTokens(
      Named({"<fim_prefix>", "<fim_middle>", "<fim_suffix>"}), {});
  EXPECT_THAT(star.ends(), ElementsAre(0, 2, 1));
  EXPECT_TRUE(
      FindFimTokens(
          Named({"<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"}), {})
          .complete());
  // The tokens are from two families.
  const FimTokens mixed = FindFimTokens(
      Named({"<fim_prefix>", "<|fim_middle|>", "<|fim_suffix|>"}), {});
  EXPECT_FALSE(mixed.complete());
  EXPECT_THAT(mixed.ends(), IsEmpty());
}

TEST(FimTokensTest, IdsThatFilesNameComeFirst) {
  const Vocabulary vocabulary =
      Named({"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<other>"});
  FimTokens named;
  named.middle = 3;
  const FimTokens tokens = FindFimTokens(vocabulary, named);
  EXPECT_EQ(tokens.prefix, 0);
  EXPECT_EQ(tokens.middle, 3);
}

TEST(FimTokensTest, ATokenizerKnowsItsOwn) {
  EXPECT_FALSE(testing::MakeAsciiTokenizer("[]")->fim_tokens().complete());
  const auto tokenizer = testing::MakeAsciiTokenizer(R"([
      {"id": 100, "content": "<|fim_prefix|>", "special": true},
      {"id": 101, "content": "<|fim_middle|>", "special": true},
      {"id": 102, "content": "<|fim_suffix|>", "special": false}])");
  EXPECT_THAT(tokenizer->fim_tokens().ends(), ElementsAre(100, 102, 101));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGguf(
    const std::vector<std::pair<std::string, uint32_t>>& keys) {
  GgufWriter writer;
  writer.String("tokenizer.ggml.model", "gpt2");
  writer.String("tokenizer.ggml.pre", "qwen2");
  writer.Strings("tokenizer.ggml.tokens",
                 std::vector<std::string>{"a", "<P>", "<S>", "<M>", "<F>"});
  writer.Int32s("tokenizer.ggml.token_type",
                std::vector<int32_t>{1, 3, 3, 3, 3});
  writer.Strings("tokenizer.ggml.merges", std::vector<std::string>());
  for (const auto& [key, id] : keys) {
    writer.Uint32(absl::StrCat("tokenizer.ggml.", key), id);
  }
  const testing::TempDir dir;
  return Tokenizer::Load(dir.Write("m.gguf", writer.Header()));
}

TEST(FimTokensTest, GgufFilesNameThemById) {
  for (const bool older : {false, true}) {
    const auto tokenizer =
        LoadGguf({{older ? "prefix_token_id" : "fim_pre_token_id", 1},
                  {older ? "suffix_token_id" : "fim_suf_token_id", 2},
                  {older ? "middle_token_id" : "fim_mid_token_id", 3},
                  {"fim_sep_token_id", 4}});
    ASSERT_THAT(tokenizer, IsOk());
    EXPECT_THAT((*tokenizer)->fim_tokens().ends(), ElementsAre(1, 2, 3, 4));
    EXPECT_EQ((*tokenizer)->fim_tokens().file, 4);
  }
}

TEST(FimTokensTest, AnIdOutsideTheVocabularyIsNone) {
  const auto tokenizer = LoadGguf({{"fim_pre_token_id", 5},
                                   {"fim_suf_token_id", 0xFFFFFFFF},
                                   {"fim_mid_token_id", 3}});
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_FALSE((*tokenizer)->fim_tokens().complete());
  EXPECT_EQ((*tokenizer)->fim_tokens().middle, 3);
}

}  // namespace
}  // namespace foretoken
