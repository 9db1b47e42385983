// Tokenizer::EncodeSpans of every kind of tokenizer.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/text/hf_tokenizer.h"
#include "common/text/jinja/unicode.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::SourcePath;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

bool IsControl(const Tokenizer& tokenizer, TokenId id) {
  return IsControlToken(tokenizer.vocabulary().content(id),
                        tokenizer.IsSpecial(id));
}

class EncodeSpansTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded =
        Tokenizer::Load(SourcePath(std::string("tests/golden/") + GetParam()));
    FORETOKEN_ASSERT_OK(loaded);
    tokenizer_ = *std::move(loaded);
  }

  // The texts of the golden vectors beside the tokenizer.
  std::vector<std::string> Texts() const {
    std::string path = SourcePath(std::string("tests/golden/") + GetParam());
    path = path.substr(0, path.find('.', path.rfind('/'))) + ".jsonl.gz";
    std::vector<std::string> texts;
    auto reader = LineReader::Open(path);
    EXPECT_THAT(reader, testing::IsOk());
    std::string line;
    while (reader.ok() && (*reader)->Next(line).value_or(false)) {
      const Json row = ParseJson(line).value();
      if (row.contains("text")) texts.push_back(row.at("text"));
    }
    return texts;
  }

  // Special tokens that a text can spell.
  std::vector<TokenId> Controls() const {
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (tokenizer_->vocabulary().kind(id) == TokenKind::kSpecial &&
          tokenizer_->vocabulary().content(id).size() > 1) {
        ids.push_back(id);
      }
    }
    return ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(EncodeSpansTest, SpansWithoutControlTokensEncodeAsTheJoinedText) {
  std::mt19937 random(11);
  const std::vector<TokenId> controls = Controls();
  int compared = 0;
  for (const std::string& text : Texts()) {
    const std::vector<TokenId> want = tokenizer_->Encode(text);
    if (std::any_of(want.begin(), want.end(),
                    [&](TokenId id) { return IsControl(*tokenizer_, id); })) {
      continue;
    }
    // A tokenizer.model takes control pieces for text, spans of the template do
    // not.
    const bool spelled =
        std::any_of(controls.begin(), controls.end(), [&](TokenId id) {
          return absl::StrContains(text, tokenizer_->vocabulary().content(id));
        });
    if (spelled) continue;
    const std::vector<size_t> offsets = jinja::CharacterOffsets(text);
    for (const bool all_of_request : {true, false}) {
      std::vector<PromptSpan> spans;
      for (size_t i = 0; i + 1 < offsets.size();) {
        const size_t next =
            std::min<size_t>(i + 1 + random() % 12, offsets.size() - 1);
        spans.push_back({text.substr(offsets[i], offsets[next] - offsets[i]),
                         !all_of_request && random() % 2 == 0});
        i = next;
      }
      ASSERT_EQ(tokenizer_->EncodeSpans(spans), want) << text;
    }
    ++compared;
  }
  EXPECT_GE(compared, 60);
}

TEST_P(EncodeSpansTest, ControlTokensAreFoundInSpansOfTheTemplateOnly) {
  const std::vector<TokenId> controls = Controls();
  for (const TokenId id : controls) {
    const std::string text(tokenizer_->vocabulary().content(id));
    EXPECT_THAT(
        tokenizer_->EncodeSpans({{"it ", false}, {text, true}, {" so", false}}),
        Contains(id))
        << text;
    EXPECT_THAT(
        tokenizer_->EncodeSpans({{"it ", true}, {text, false}, {" so", true}}),
        Not(Contains(id)))
        << text;
    // Nor does a part of one complete what the other began.
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) continue;
      for (const bool first : {true, false}) {
        EXPECT_THAT(
            tokenizer_->EncodeSpans({{"it ", true},
                                     {text.substr(0, cut), first},
                                     {text.substr(cut) + " so", !first}}),
            Not(Contains(id)))
            << text << " cut at " << cut;
      }
    }
  }
  EXPECT_GE(controls.size(), 1u);
}

TEST_P(EncodeSpansTest, WhatARequestSpellsIsItsText) {
  if (tokenizer_->Decode(tokenizer_->Encode("<")).value() != "<") {
    GTEST_SKIP() << "the vocabulary cannot spell its control tokens";
  }
  for (const TokenId id : Controls()) {
    const std::string text =
        "it " + std::string(tokenizer_->vocabulary().content(id)) + " so";
    const auto decoded =
        tokenizer_->Decode(tokenizer_->EncodeSpans({{text, false}}));
    FORETOKEN_ASSERT_OK(decoded);
    EXPECT_EQ(*decoded, text);
  }
}

TEST_P(EncodeSpansTest, SpansOfTheTemplateAloneEncodeAsTheirText) {
  for (const std::string& text : Texts()) {
    if (std::string(GetParam()).find(".model") != std::string::npos) break;
    ASSERT_EQ(tokenizer_->EncodeSpans({{text, true}}), tokenizer_->Encode(text))
        << text;
  }
}

TEST_P(EncodeSpansTest, NothingIsNothing) {
  EXPECT_THAT(tokenizer_->EncodeSpans({}), ElementsAre());
  EXPECT_EQ(tokenizer_->EncodeSpans({{"", true}, {"", false}}),
            tokenizer_->Encode(""));
}

INSTANTIATE_TEST_SUITE_P(
    All, EncodeSpansTest,
    ::testing::Values("tokenizers/llama3.json.gz", "tokenizers/qwen2.json.gz",
                      "tokenizers/deepseek3.json.gz",
                      "tokenizers/llama2_json.json.gz",
                      "tokenizers/metaspace_first.json.gz",
                      "tokenizers/sp_bytes.model", "gguf/tokenizer_llama.gguf",
                      "gguf/tokenizer_qwen2.gguf",
                      "gguf/tokenizer_llama-bpe.gguf"),
    [](const auto& param_info) {
      std::string name = param_info.param;
      std::replace_if(
          name.begin(), name.end(),
          [](char c) { return c == '/' || c == '.' || c == '-'; }, '_');
      return name;
    });

// A tokenizer whose added tokens are looked for in text with a sign in front
// and longer spaces: offsets there are not those of the prompt.
std::unique_ptr<Tokenizer> Normalizing() {
  const Json file = Json::parse(R"({
    "added_tokens": [
      {"id": 9, "content": "<s>", "special": true, "normalized": true},
      {"id": 10, "content": "<t>", "special": false, "normalized": true},
      {"id": 11, "content": "xx", "special": false, "normalized": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true,
              "byte_fallback": false,
              "vocab": {"<unk>": 0, "a": 1, "\u2581": 2, "<": 3, "s": 4,
                        ">": 5, "t": 6, "x": 7, "/": 8},
              "merges": []}})");
  auto tokenizer = MakeHfTokenizerFromJson(file, {});
  EXPECT_THAT(tokenizer, testing::IsOk());
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST(EncodeSpansNormalizedTest, OriginsAreMappedThroughTheNormalizer) {
  const auto tokenizer = Normalizing();
  ASSERT_NE(tokenizer, nullptr);
  const TokenId found = tokenizer->Encode("<s>").back();
  ASSERT_EQ(tokenizer->vocabulary().content(found), "<s>");
  const auto count = [&](const std::vector<PromptSpan>& spans, TokenId id) {
    const auto ids = tokenizer->EncodeSpans(spans);
    return std::count(ids.begin(), ids.end(), id);
  };
  EXPECT_EQ(count({{"a <s> a", true}}, 9), 1);
  EXPECT_EQ(count({{"a <s> a", false}}, 9), 0);
  EXPECT_EQ(count({{"a <s>", true}, {" <s> ", false}, {"<s>", true}}, 9), 2);
  EXPECT_EQ(count({{" a  a ", false}, {"<s>", true}, {" a", false}}, 9), 1);
  EXPECT_EQ(count({{"<", true}, {"s", false}, {">", true}}, 9), 0);
  // A token in brackets counts as control; one of plain text does not.
  EXPECT_EQ(count({{"<t>", true}, {"<t>", false}}, 10), 1);
  EXPECT_EQ(count({{"x", true}, {"x", false}, {" xx", false}}, 11), 2);
  // Many borders in one part: what cannot be mapped is the request's.
  std::vector<PromptSpan> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back({"a", false});
    many.push_back({"<s>", i == 100});
  }
  EXPECT_LE(count(many, 9), 1);
}

}  // namespace
}  // namespace foretoken
