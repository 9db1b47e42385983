#include "common/text/tokenizer.h"

#include "common/base/file.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string GoldenBytes(const std::string& name) {
  return ReadFile(testing::SourcePath("tests/golden/tokenizers/" + name))
      .value();
}

TEST(TokenizerTest, ADirectoryTakesTokenizerJsonBeforeTokenizerModel) {
  const TempDir dir;
  dir.Write("tokenizer.model", GoldenBytes("sp_bytes.model"));
  const auto model = Tokenizer::Load(dir.path());
  FORETOKEN_ASSERT_OK(model);
  EXPECT_TRUE((*model)->StripsLeadingSpace());
  dir.Write("tokenizer.json", GoldenBytes("llama3.json.gz"));
  const auto json = Tokenizer::Load(dir.path());
  FORETOKEN_ASSERT_OK(json);
  EXPECT_FALSE((*json)->StripsLeadingSpace());
}

TEST(TokenizerTest, ASharedTokenizerIsLoadedOnceWhileItIsHeld) {
  const TempDir dir;
  EXPECT_TRUE(absl::IsNotFound(Tokenizer::LoadShared(dir.path()).status()));
  dir.Write("tokenizer.model", GoldenBytes("sp_bytes.model"));
  auto first = Tokenizer::LoadShared(dir.path());
  FORETOKEN_ASSERT_OK(first);
  EXPECT_EQ(*Tokenizer::LoadShared(dir.path()), *first);
  // Once nobody holds it, it is read again.
  dir.Write("tokenizer.json", GoldenBytes("llama3.json.gz"));
  EXPECT_TRUE((*Tokenizer::LoadShared(dir.path()))->StripsLeadingSpace());
  first->reset();
  EXPECT_FALSE((*Tokenizer::LoadShared(dir.path()))->StripsLeadingSpace());
}

TEST(TokenizerTest, TokenizerModelAsksForBosUnlessTheConfigSaysNot) {
  const TempDir dir;
  dir.Write("tokenizer.model", GoldenBytes("sp_bytes.model"));
  EXPECT_EQ((*Tokenizer::Load(dir.path()))->EncodePrompt("a")[0], 1);
  dir.Write("tokenizer_config.json", R"({"add_bos_token": false})");
  const auto tokenizer = Tokenizer::Load(dir.path());
  EXPECT_EQ((*tokenizer)->EncodePrompt("a"), (*tokenizer)->Encode("a"));
}

TEST(TokenizerTest, ConfigTokensMayBeObjects) {
  const TempDir dir;
  dir.Write("tokenizer.json", GoldenBytes("llama3.json.gz"));
  dir.Write("tokenizer_config.json",
            R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
                "add_eos_token": true})");
  const auto tokenizer = Tokenizer::Load(dir.path());
  FORETOKEN_ASSERT_OK(tokenizer);
  const TokenId bos = (*tokenizer)->bos_token();
  EXPECT_EQ((*tokenizer)->vocabulary().content(bos), "<s>");
  const std::vector<TokenId> ids = (*tokenizer)->EncodePrompt("");
  EXPECT_THAT(ids, ElementsAre(bos, (*tokenizer)->eos_token()));
}

TEST(TokenizerTest, ErrorsNameTheFile) {
  const TempDir dir;
  EXPECT_THAT(Tokenizer::Load(dir.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(dir.path())));
  EXPECT_THAT(Tokenizer::Load(dir.File("absent.json")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.json")));
  EXPECT_THAT(Tokenizer::Load(dir.Write("tokenizer.json", "{\"model\": ")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tokenizer.json"), HasSubstr("JSON"))));
  dir.Write("tokenizer_config.json", R"({"add_bos_token": "yes"})");
  EXPECT_THAT(
      Tokenizer::Load(dir.path()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("tokenizer_config.json"),
                     HasSubstr("add_bos_token: \"yes\", want true or false"))));
}

TEST(TokenizerTest, TheFingerprintDoesNotDependOnTheFileOrItsPacking) {
  const TempDir dir;
  const auto packed = Tokenizer::Load(
      testing::SourcePath("tests/golden/tokenizers/qwen2.json.gz"));
  const auto plain =
      Tokenizer::Load(dir.Write("plain.json", GoldenBytes("qwen2.json.gz")));
  const auto other = Tokenizer::Load(
      testing::SourcePath("tests/golden/tokenizers/llama3.json.gz"));
  EXPECT_EQ((*packed)->fingerprint(), (*plain)->fingerprint());
  EXPECT_NE((*packed)->fingerprint(), (*other)->fingerprint());
}

}  // namespace
}  // namespace foretoken
