#include "common/text/gguf_tokenizer.h"

#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

// The keys of a file, each of which a test may change or leave out.
struct File {
  std::string model = "gpt2";
  std::string pre = "qwen2";
  std::vector<std::string> tokens = {"<s>", "a", "b", "ab", "<tool>"};
  std::vector<int32_t> types = {3, 1, 1, 1, 4};
  std::vector<std::string> merges = {"a b"};
  std::vector<float> scores;
  std::function<void(GgufWriter&)> more;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const File& file) {
  GgufWriter writer;
  if (!file.model.empty()) writer.String("tokenizer.ggml.model", file.model);
  if (!file.pre.empty()) writer.String("tokenizer.ggml.pre", file.pre);
  writer.Strings("tokenizer.ggml.tokens", file.tokens);
  writer.Int32s("tokenizer.ggml.token_type", file.types);
  if (!file.merges.empty()) {
    writer.Strings("tokenizer.ggml.merges", file.merges);
  }
  if (!file.scores.empty()) {
    writer.Float32s("tokenizer.ggml.scores", file.scores);
  }
  if (file.more) file.more(writer);
  const TempDir dir;
  return Tokenizer::Load(dir.Write("m.gguf", writer.Header()));
}

File SentencePiece() {
  File file;
  file.model = "llama";
  file.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "▁a"};
  file.types = {2, 3, 3, 1, 1, 1};
  file.scores = {0, 0, 0, -2, -3, -1};
  return file;
}

TEST(GgufTokenizerTest, AddedTokensAreFoundInATextAndSpecialOnesHidden) {
  const auto tokenizer = Load({});
  FORETOKEN_ASSERT_OK(tokenizer);
  EXPECT_THAT((*tokenizer)->Encode("ab<tool>b<s>"), ElementsAre(3, 4, 2, 0));
  EXPECT_EQ(*(*tokenizer)->Decode({3, 4, 2, 0}), "ab<tool>b");
  EXPECT_EQ((*tokenizer)->bos_token(), -1);
  EXPECT_EQ((*tokenizer)->chat_template(), "");
}

TEST(GgufTokenizerTest, DefaultIsolatesMarksAndCutsNumbersInThrees) {
  File file;
  file.tokens = {"1",  "2",     "3", "4", "5",  "x",  "(", "12", "123",
                 "45", "12345", "Ġ", "y", "Ġ(", "Ġ1", "'", "s",  "'s"};
  file.types.assign(file.tokens.size(), 1);
  file.merges = {"1 2", "12 3", "4 5", "123 45", "Ġ (", "Ġ 1", "' s"};
  file.pre = "default";
  const auto tokenizer = Load(file);
  FORETOKEN_ASSERT_OK(tokenizer);
  EXPECT_THAT((*tokenizer)->Encode("12345"), ElementsAre(8, 9));
  EXPECT_THAT((*tokenizer)->Encode("x (y"), ElementsAre(5, 11, 6, 12));
  EXPECT_THAT((*tokenizer)->Encode("x 12"), ElementsAre(5, 11, 7));
  EXPECT_THAT((*tokenizer)->Encode("x's"), ElementsAre(5, 15, 16));
  file.pre = "gpt-2";
  const auto gpt2 = Load(file);
  FORETOKEN_ASSERT_OK(gpt2);
  EXPECT_THAT((*gpt2)->Encode("12345"), ElementsAre(10));
  EXPECT_THAT((*gpt2)->Encode("x (y"), ElementsAre(5, 13, 12));
  EXPECT_THAT((*gpt2)->Encode("x's"), ElementsAre(5, 17));
}

TEST(GgufTokenizerTest, UnusedTokensAreAbsentAndNotCountedAtTheEnd) {
  File file;
  file.tokens = {"a", "[1]", "b", "ab", "[PAD4]", "[PAD5]"};
  file.types = {1, 5, 1, 1, 5, 5};
  const auto tokenizer = Load(file);
  FORETOKEN_ASSERT_OK(tokenizer);
  EXPECT_EQ((*tokenizer)->vocab_size(), 4);
  EXPECT_EQ((*tokenizer)->vocabulary().kind(1), TokenKind::kAbsent);
}

TEST(GgufTokenizerTest, PromptTokensFollowTheKeysAndElseThePreTokenizer) {
  const auto prompt = [](const char* pre, std::optional<bool> add) {
    File file;
    file.pre = pre;
    file.more = [add](GgufWriter& writer) {
      writer.Uint32("tokenizer.ggml.bos_token_id", 0);
      if (add) writer.Bool("tokenizer.ggml.add_bos_token", *add);
    };
    return (*Load(file))->EncodePrompt("a");
  };
  EXPECT_THAT(prompt("qwen2", std::nullopt), ElementsAre(1));
  EXPECT_THAT(prompt("qwen2", true), ElementsAre(0, 1));
  EXPECT_THAT(prompt("llama-bpe", std::nullopt), ElementsAre(0, 1));
  EXPECT_THAT(prompt("llama-bpe", false), ElementsAre(1));
  EXPECT_THAT((*Load(SentencePiece()))->EncodePrompt("a"), ElementsAre(1, 5));
  File bare = SentencePiece();
  bare.more = [](GgufWriter& writer) {
    writer.Bool("tokenizer.ggml.add_bos_token", false);
    writer.Bool("tokenizer.ggml.add_eos_token", true);
    writer.Bool("tokenizer.ggml.add_space_prefix", false);
  };
  EXPECT_THAT((*Load(bare))->EncodePrompt("a"), ElementsAre(4, 2));
}

// Values without blocks on the disk, which must not be copied into memory.
TEST(GgufTokenizerTest, ListsLongerThanTheVocabularyAreRefusedFromASparseFile) {
  constexpr uint64_t kCount = uint64_t{1} << 36;
  const auto sparse = [&](const char* key) {
    GgufWriter writer;
    writer.String("tokenizer.ggml.model", "llama");
    writer.Strings("tokenizer.ggml.tokens", {{"<unk>", "<s>", "</s>"}});
    writer.Bytes(key, "");
    std::string header = writer.Header();
    // The last key's count, before the padding.
    const size_t end = header.rfind(key) + std::string(key).size() + 16;
    header.resize(end);
    std::memcpy(&header[end - sizeof(kCount)], &kCount, sizeof(kCount));
    const TempDir dir;
    const std::string path = dir.Write("m.gguf", header);
    FORETOKEN_CHECK(truncate(path.c_str(), static_cast<off_t>(end + kCount)) ==
                    0);
    return Tokenizer::Load(path).status();
  };
  for (const char* key : {"tokenizer.ggml.token_type", "tokenizer.ggml.scores",
                          "tokenizer.ggml.precompiled_charsmap"}) {
    EXPECT_THAT(
        sparse(key),
        StatusIs(kInvalid, HasSubstr(absl::StrCat(key,
                                                  " is a list of 68719476736 "
                                                  "uint8, want at most "))));
  }
  File file;
  file.types.push_back(1);
  EXPECT_THAT(Load(file),
              StatusIs(kInvalid, HasSubstr("token_type is a list of 6 int32, "
                                           "want a list of at most 5")));
  file = SentencePiece();
  file.scores.push_back(0);
  EXPECT_THAT(Load(file),
              StatusIs(kInvalid, HasSubstr("scores is a list of 7 float32, "
                                           "want a list of at most 6")));
}

TEST(GgufTokenizerTest, WhatIsNotKnownIsRefusedByKeyAndValue) {
  const auto expect = [](const File& file, absl::StatusCode code,
                         const char* want) {
    EXPECT_THAT(Load(file), StatusIs(code, HasSubstr(want)));
  };
  File file;
  file.model = "";
  expect(file, absl::StatusCode::kNotFound, "tokenizer.ggml.model is missing");
  file.model = "t5";
  expect(file, kUnimplemented, "model is \"t5\", want gpt2 or llama");
  file = {};
  file.pre = "";
  expect(file, kUnimplemented, "pre is missing, want one of gpt-2, default");
  file.pre = "chatglm-bpe";
  expect(file, kUnimplemented, "pre is \"chatglm-bpe\", want one of gpt-2");
  file = {};
  file.tokens[3] = "a";
  expect(file, kInvalid, "want each once; token 3 is there before");
  file.tokens[3] = "\xFF";
  expect(file, kInvalid, "want UTF-8, which token 3 is not");
  file = {};
  file.types.pop_back();
  expect(file, kInvalid, "token_type is a list of 4 int32, want as many as");
  file.types = {3, 1, 7, 1, 4};
  expect(file, kInvalid, "want types 1..6, not 7 of token 2");
  file = {};
  file.merges = {"a c"};
  expect(file, kInvalid, "m.gguf: as a tokenizer.json: model.merges[0]");
  file.merges = {};
  expect(file, kInvalid, "tokenizer.ggml.merges is missing");
  file = {};
  file.more = [](GgufWriter& writer) {
    writer.Bool("tokenizer.ggml.lowercase", true);
  };
  expect(file, kUnimplemented, "lowercase is true, want no such key");
  file.more = [](GgufWriter& writer) {
    writer.Bool("tokenizer.ggml.add_bos_token", true);
  };
  expect(file, kInvalid, "add_bos_token is true, want false where no such");
  file.more = [](GgufWriter& writer) {
    writer.Uint32("tokenizer.ggml.eos_token_id", 5);
  };
  expect(file, kInvalid, "eos_token_id is 5, want an integer in 0..4");
  file.more = [](GgufWriter& writer) {
    writer.Bool("tokenizer.ggml.add_space_prefix", true);
  };
  expect(file, kUnimplemented, "add_space_prefix is true, want false with");

  file = SentencePiece();
  file.scores.pop_back();
  expect(file, kInvalid, "scores is a list of 5 float32, want one for each");
  file = SentencePiece();
  file.types[0] = 1;
  expect(file, kInvalid, "pieces: 0 have type UNKNOWN, want exactly one");
  file = SentencePiece();
  file.types[4] = 6;
  expect(file, kInvalid, "piece: \"a\" has type BYTE");
  file = SentencePiece();
  file.more = [](GgufWriter& writer) {
    writer.Strings("tokenizer.ggml.precompiled_charsmap", {});
  };
  expect(file, kInvalid, "precompiled_charsmap is a list of 0 string, want");
}

}  // namespace
}  // namespace foretoken
