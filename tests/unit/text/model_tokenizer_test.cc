#include "common/text/model_tokenizer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken {
namespace {

using ::testing::IsNull;
using ::testing::NotNull;

TEST(ModelTokenizerTest, IsTheOneInTheModelsFolder) {
  const testing::TempDir model;
  model.Write("tokenizer.json", testing::TinyTokenizerJson());
  const auto tokenizer = LoadModelTokenizer(model.File(""));
  FORETOKEN_ASSERT_OK(tokenizer);
  ASSERT_THAT(*tokenizer, NotNull());
  EXPECT_EQ(*Tokenizer::LoadShared(model.File("")), *tokenizer);
}

TEST(ModelTokenizerTest, IsNullForAModelWithoutOneAndForNoModel) {
  const testing::TempDir model;
  const auto none = LoadModelTokenizer(model.File(""));
  FORETOKEN_ASSERT_OK(none);
  EXPECT_THAT(*none, IsNull());
  const auto random = LoadModelTokenizer("");
  FORETOKEN_ASSERT_OK(random);
  EXPECT_THAT(*random, IsNull());
}

TEST(ModelTokenizerTest, ADamagedOneIsAnError) {
  const testing::TempDir model;
  model.Write("tokenizer.json", "{");
  const auto tokenizer = LoadModelTokenizer(model.File(""));
  EXPECT_FALSE(tokenizer.ok());
  EXPECT_FALSE(absl::IsNotFound(tokenizer.status()));
}

}  // namespace
}  // namespace foretoken
