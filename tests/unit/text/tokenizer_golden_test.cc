// Every vector that the original libraries gave must come back.
#include <random>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::SourcePath;

// Reads vectors and checks each; returns how many there were.
int CheckVectors(const Tokenizer& tokenizer, const std::string& path) {
  auto reader = LineReader::Open(path);
  if (!reader.ok()) {
    ADD_FAILURE() << reader.status();
    return 0;
  }
  int count = 0;
  std::string line;
  while (true) {
    const auto more = (*reader)->Next(line);
    if (!more.ok()) ADD_FAILURE() << more.status();
    if (!more.ok() || !*more) return count;
    const auto row = ParseJson(line);
    if (!row.ok()) {
      ADD_FAILURE() << row.status();
      return count;
    }
    const auto ids = row->at("ids").get<std::vector<TokenId>>();
    if (row->contains("text")) {
      EXPECT_EQ(tokenizer.Encode(row->at("text").get<std::string>()), ids)
          << path << ":" << (*reader)->line_number();
    } else {
      const auto text = tokenizer.Decode(ids);
      EXPECT_EQ(text.value_or("error"), row->at("decoded").get<std::string>())
          << path << ":" << (*reader)->line_number();
    }
    ++count;
  }
}

std::string Golden(const std::string& name) {
  return SourcePath("tests/golden/tokenizers/" + name);
}

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::Load(Golden(GetParam()));
    FORETOKEN_ASSERT_OK(loaded);
    tokenizer_ = *std::move(loaded);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(GoldenTest, EqualsTheOriginalOnEveryVector) {
  const std::string file = GetParam();
  const std::string stem = file.substr(0, file.find('.'));
  EXPECT_EQ(CheckVectors(*tokenizer_, Golden(stem + ".jsonl.gz")), 642);
}

TEST_P(GoldenTest, IncrementalTextEqualsTheWholeForRandomIds) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> ids(random() % 20);
    // Half of them among the bytes, where characters break.
    for (TokenId& id : ids) {
      id = static_cast<TokenId>(
          random() % (random() % 2 == 0 ? 300 : tokenizer_->vocab_size()));
    }
    Detokenizer detokenizer(*tokenizer_);
    std::string text;
    for (const TokenId id : ids) {
      std::string piece;
      FORETOKEN_ASSERT_OK(detokenizer.Push(id, piece));
      ASSERT_TRUE(IsValidUtf8(piece));
      text += piece;
    }
    detokenizer.Flush(text);
    ASSERT_EQ(text, tokenizer_->Decode(ids).value()) << "round " << round;
  }
}

TEST_P(GoldenTest, MillionsOfOneCharacterTakeNoMoreThanLinearTime) {
  // Quadratic work would run into the time limit of the test.
  for (const std::string unit : {"a", " ", "\n", "\u4eca", "'s", "1", "\xFF"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    text += "x";
    // A byte is a token at worst; a malformed one may become U+FFFD.
    EXPECT_LE(tokenizer_->Encode(text).size(), 3 * text.size() + 3);
  }
}

TEST_P(GoldenTest, OutOfVocabularyIdsAreRefused) {
  EXPECT_EQ(tokenizer_->Decode({tokenizer_->vocab_size()}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tokenizer_->Decode({-1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenTest,
    ::testing::Values("llama3.json.gz", "qwen2.json.gz", "deepseek.json.gz",
                      "deepseek3.json.gz", "gpt2_prefix_space.json.gz",
                      "removed_inverted.json.gz", "llama2_json.json.gz",
                      "metaspace_first.json.gz", "metaspace_always.json.gz",
                      "sp_bytes.model", "sp_rules.model"),
    [](const auto& param_info) {
      const std::string file = param_info.param;
      return file.substr(0, file.find('.'));
    });

// Byte-level vocabularies write every byte: nothing is lost.
TEST(ByteLevelTest, AnyBytesComeBackFromTheTokens) {
  for (const char* name : {"llama3.json.gz", "deepseek3.json.gz"}) {
    auto tokenizer = Tokenizer::Load(Golden(name));
    FORETOKEN_ASSERT_OK(tokenizer);
    std::mt19937 random(11);
    for (int round = 0; round < 500; ++round) {
      std::string text(random() % 40, '\0');
      for (char& c : text) c = static_cast<char>(random());
      std::string bytes;
      for (const TokenId id : (*tokenizer)->Encode(text)) {
        bytes.append((*tokenizer)->TokenBytes(id).data(),
                     (*tokenizer)->TokenBytes(id).size());
      }
      ASSERT_EQ(bytes, text);
    }
  }
}

void CheckData(const char* tokenizer_file,
               const std::vector<std::string>& vectors, int want_count) {
  FORETOKEN_DATA_OR_SKIP(path, tokenizer_file);
  auto tokenizer = Tokenizer::Load(path);
  FORETOKEN_ASSERT_OK(tokenizer);
  int count = 0;
  for (const std::string& file : vectors) {
    FORETOKEN_DATA_OR_SKIP(vector_path, file);
    count += CheckVectors(**tokenizer, vector_path);
  }
  EXPECT_EQ(count, want_count);
}

TEST(DataTest, Llama2) {
  CheckData("tokenizers/llama2/tokenizer.model",
            {"tokenizers/llama2/test_vectors.jsonl",
             "tokenizers/llama2/vectors_sentencepiece.jsonl.gz"},
            218);
}

TEST(DataTest, Gpt2) {
  CheckData("tokenizers/gpt2/tokenizer.json.gz",
            {"tokenizers/gpt2/test_vectors.jsonl"}, 47);
}

TEST(DataTest, DeepSeekCoder) {
  CheckData("tokenizers/deepseek-coder/tokenizer.json.gz",
            {"tokenizers/deepseek-coder/test_vectors.jsonl"}, 47);
}

}  // namespace
}  // namespace foretoken
