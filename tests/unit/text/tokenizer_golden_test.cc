// Every vector that the original libraries gave must come back.
#include <random>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/text/gguf_tokenizer.h"
#include "common/text/gguf_tokenizer_export.h"
#include "common/text/tokenizer.h"
#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::SourcePath;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;

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

// Quadratic work would run into the time limit of the test.
void ExpectLinearTime(const Tokenizer& tokenizer) {
  for (const std::string unit : {"a", " ", "\n", "\u4eca", "'s", "1", "\xFF"}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    text += unit == " " ? "\u4eca" : "x";
    // A byte is a token at worst; a malformed one may become U+FFFD.
    EXPECT_LE(tokenizer.Encode(text).size(), 3 * text.size() + 3);
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
  ExpectLinearTime(*tokenizer_);
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

// GGUF files that the Python package `gguf` wrote of the tokenizers beside
// them.
std::string GoldenGguf(const std::string& name, const std::string& suffix) {
  return SourcePath("tests/golden/gguf/tokenizer_" + name + suffix);
}

// Files of a Hugging Face directory as GGUF keys and back.
std::unique_ptr<Tokenizer> Exported(const TempDir& dir, int32_t vocab_size) {
  GgufWriter writer;
  FORETOKEN_EXPECT_OK(AddGgufTokenizerKeys(dir.path(), vocab_size, writer));
  auto tokenizer = Tokenizer::Load(dir.Write("m.gguf", writer.Header()));
  FORETOKEN_EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

constexpr char kGgufConfig[] =
    R"({"bos_token": "<|begin|>", "eos_token": "<|end|>",
        "chat_template": "{{ messages }}"})";

TEST(GgufGoldenTest, EveryPreTokenizerIsThatOfTheOriginal) {
  for (const std::string& pre : GgufPreTokenizers()) {
    const auto tokenizer = Tokenizer::Load(GoldenGguf(pre, ".gguf"));
    FORETOKEN_ASSERT_OK(tokenizer);
    EXPECT_EQ(CheckVectors(**tokenizer, GoldenGguf(pre, ".jsonl.gz")), 412);
    EXPECT_EQ((*tokenizer)->bos_token(), 0);
    EXPECT_EQ((*tokenizer)->eos_token(), 1);
    EXPECT_EQ((*tokenizer)->chat_template(), "{{ messages }}");
    ExpectLinearTime(**tokenizer);
    // Its tokenizer.json has a line anchor, which is refused there.
    if (pre == "deepseek-llm") continue;
    const auto original = Tokenizer::Load(GoldenGguf(pre, ".json.gz"));
    FORETOKEN_ASSERT_OK(original);
    EXPECT_EQ((*tokenizer)->fingerprint(), (*original)->fingerprint()) << pre;
    EXPECT_EQ((*tokenizer)->EncodePrompt("it is"),
              (*original)->EncodePrompt("it is"));
    const TempDir dir;
    dir.Write("tokenizer.json", *ReadFile(GoldenGguf(pre, ".json.gz")));
    dir.Write("tokenizer_config.json", kGgufConfig);
    const auto exported = Exported(dir, 700);
    EXPECT_EQ(CheckVectors(*exported, GoldenGguf(pre, ".jsonl.gz")), 412);
    EXPECT_EQ(exported->EncodePrompt("it"), (*original)->EncodePrompt("it"));
    EXPECT_EQ(exported->chat_template(), "{{ messages }}");
  }
}

TEST(GgufGoldenTest, PiecesWithScoresEncodeAsSentencePiece) {
  const auto tokenizer = Tokenizer::Load(GoldenGguf("llama", ".gguf"));
  FORETOKEN_ASSERT_OK(tokenizer);
  EXPECT_EQ(CheckVectors(**tokenizer, GoldenGguf("llama", ".jsonl.gz")), 380);
  const auto original = Tokenizer::Load(Golden("sp_bytes.model"));
  FORETOKEN_ASSERT_OK(original);
  EXPECT_EQ((*tokenizer)->fingerprint(), (*original)->fingerprint());
  EXPECT_EQ((*tokenizer)->EncodePrompt("it is"),
            (*original)->EncodePrompt("it is"));
  const TempDir dir;
  dir.Write("tokenizer.model", *ReadFile(Golden("sp_bytes.model")));
  const auto exported = Exported(dir, 800);
  EXPECT_EQ(CheckVectors(*exported, GoldenGguf("llama", ".jsonl.gz")), 380);
  EXPECT_EQ(exported->EncodePrompt("it"), (*original)->EncodePrompt("it"));
  // Control pieces in a text are themselves, and a text of its own follows.
  std::vector<TokenId> want = (*original)->Encode("it is");
  want.push_back(2);
  const std::vector<TokenId> rest = (*original)->Encode("so");
  want.insert(want.end(), rest.begin(), rest.end());
  EXPECT_EQ((*tokenizer)->Encode("it is</s>so"), want);
}

TEST(GgufGoldenTest, WhatAFileCannotSayIsNotExported) {
  const auto refused = [](const char* golden, int32_t vocab_size) {
    const TempDir dir;
    dir.Write("tokenizer.json", *ReadFile(Golden(golden)));
    GgufWriter writer;
    return AddGgufTokenizerKeys(dir.path(), vocab_size, writer);
  };
  EXPECT_THAT(refused("llama3.json.gz", 1000),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("has lstrip, rstrip or single_word")));
  EXPECT_THAT(refused("metaspace_first.json.gz", 1000),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("those of no tokenizer.ggml.pre")));
  EXPECT_THAT(refused("llama3.json.gz", 10),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model's vocab_size is 10")));
  GgufWriter writer;
  EXPECT_TRUE(
      absl::IsNotFound(AddGgufTokenizerKeys(TempDir().path(), 10, writer)));
}

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
